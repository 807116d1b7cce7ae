package web

import (
	"net/http"

	"heddle/disguise/site"
)

// Recorded returns a handler that gives everybody the objects of a site as they were recorded, also where a bridge would hide something.
func Recorded(s *site.Site) http.Handler {
	return recorded{&visitor{factory: &factory{catalogue: fill(s, false)}}}
}

type recorded struct{ *visitor }

// ServeHTTP implements [http.Handler].
func (v recorded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := v.body(w, r)
	if err != nil {
		http.Error(w, http.StatusText(http.StatusRequestEntityTooLarge), http.StatusRequestEntityTooLarge)
		return
	}
	method, target := asked(r)
	it, _ := v.match(method, target, body)
	if it == nil {
		v.refuse(w, r, target)
		return
	}
	v.cookies(w, r, it)
	it.describe(w.Header())
	if it.Fresh() != "" {
		withoutValidators(w.Header())
		v.send(w, r, it, it.Body, it.packed)
		return
	}
	v.stable(w, r, it)
}
