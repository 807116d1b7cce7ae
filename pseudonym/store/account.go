package store

import (
	"net/http"

	"heddle/pseudonym"
	"heddle/pseudonym/web"
)

// Paths of the login.
const (
	loginPath    = "/login"
	loginKey     = "to" // in its query: where to go on
	terminalPath = "/terminal"
	// LoginDonePath is where the provider of accounts leads browsers back to.
	LoginDonePath = "/login/done"
)

// withAccount says who makes a request, if the person logged in and did not come by her pseudonym of the store.
func (u *users) withAccount(next http.Handler) http.Handler {
	if u.o.Login == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, known := knownPerson(r); !known {
			if o, ok := u.o.Login.Account(r); ok {
				r = by(r, person{o, true})
			}
		}
		next.ServeHTTP(w, r)
	})
}

// accounts adds the pages of the login.
func (u *users) accounts(mux *http.ServeMux) {
	if u.o.Login == nil {
		return
	}
	mux.HandleFunc("GET "+loginPath, func(w http.ResponseWriter, r *http.Request) {
		to := SitePath(r.FormValue("site"))
		if r.FormValue(loginKey) == terminalPath { // nowhere else, so that no link leads away from the store
			to = terminalPath
		}
		if err := u.o.Login.Begin(w, r, to); err != nil {
			u.say(w, err)
		}
	})
	mux.HandleFunc("GET "+LoginDonePath, func(w http.ResponseWriter, r *http.Request) {
		to, err := u.o.Login.Done(w, r)
		if err != nil {
			u.note(RefusedLogin)
			u.say(w, err)
			return
		}
		u.note(LoggedIn)
		http.Redirect(w, r, to, http.StatusSeeOther)
	})
	mux.HandleFunc("POST /logout", func(w http.ResponseWriter, r *http.Request) {
		u.o.Login.Forget(w)
		http.Redirect(w, r, "/", http.StatusSeeOther)
	})
	mux.HandleFunc("GET "+terminalPath, func(w http.ResponseWriter, r *http.Request) {
		p, known := knownPerson(r)
		if !known {
			http.Redirect(w, r, loginPath+"?"+loginKey+"="+terminalPath, http.StatusSeeOther)
			return
		}
		web.Write(w, http.StatusOK, web.Code{Code: u.o.Login.Code(p.owner)})
	})
}

// lacksEntrance reports whether somebody has no pseudonym of the store, by which she could come next time.
func (u *users) lacksEntrance(r *http.Request) (bool, error) {
	p, known := knownPerson(r)
	if !known || !p.account {
		return !known, nil
	}
	all, err := u.Owned(r.Context(), p.owner)
	return !has(all, u.o.Zone), err
}

func has(all []Registration, z pseudonym.Zone) bool {
	for _, one := range all {
		if one.Site == z.Store() {
			return true
		}
	}
	return false
}
