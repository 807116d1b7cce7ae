package store

import (
	"encoding/base64"
	"encoding/pem"
	"errors"
	"net/http"
	"net/url"
	"time"

	"heddle/internal/errhint"
	"heddle/pseudonym"
	"heddle/pseudonym/web"
)

// SitePath is the first page, with a site to get a pseudonym of filled in.
func SitePath(site string) string { return "/?site=" + url.QueryEscape(site) }

// mostSites is how many sites people can pick from. Others have to be typed.
const mostSites = 500

// mostForm is the size of a form in bytes.
const mostForm = 4 << 10

// pages adds what browsers ask for.
func (u *users) pages(mux *http.ServeMux) {
	mux.HandleFunc("GET /{$}", u.home)
	mux.HandleFunc("GET "+web.StylePath, web.Style)
	mux.HandleFunc("GET /root.crt", u.root)
	mux.HandleFunc("GET "+web.WorkPath, web.WorkScript)
	u.accounts(mux)
	mux.HandleFunc("POST /get", u.get)
	mux.HandleFunc("POST /renew", u.mine(func(w http.ResponseWriter, r *http.Request, o pseudonym.Owner) error {
		_, err := u.Renew(r.Context(), r.PostFormValue("name"), o)
		if err == nil {
			http.Redirect(w, r, "/", http.StatusSeeOther)
		}
		return err
	}))
	mux.HandleFunc("GET /revoke", u.mine(func(w http.ResponseWriter, r *http.Request, o pseudonym.Owner) error {
		p, err := u.own(r.Context(), r.FormValue("name"), o)
		if err == nil {
			web.Write(w, http.StatusOK, web.Revoke{Pseudonym: row(u.registration(&p), time.Time{})})
		}
		return err
	}))
	mux.HandleFunc("POST /revoke", u.mine(u.revoke))
}

// mine serves a page to somebody whom the store knows.
func (u *users) mine(f func(http.ResponseWriter, *http.Request, pseudonym.Owner) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		o, ok := owner(r)
		if !ok {
			web.Write(w, http.StatusForbidden, web.Message{Title: "The store does not know you", Text: "Come by your pseudonym of the store: open its bookmark."})
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, mostForm)
		if err := f(w, r, o); err != nil {
			u.say(w, err)
		}
	}
}

// say shows an error.
func (s *Store) say(w http.ResponseWriter, err error) {
	status, err := s.told(err)
	web.Write(w, status, web.Message{Title: "This did not work", Text: err.Error() + ".", Hint: errhint.Of(err)})
}

func row(r Registration, now time.Time) web.Pseudonym {
	return web.Pseudonym{Name: r.Name, Site: r.Site, URL: r.URL, Ends: r.Expires, Ended: r.Expires.Before(now)}
}

func (u *users) home(w http.ResponseWriter, r *http.Request) {
	p := web.Home{Zone: string(u.o.Zone), Site: r.FormValue("site")}
	tenants, err := u.o.Database.Tenants(r.Context())
	for _, t := range tenants[:min(len(tenants), mostSites)] {
		if t.Site != u.o.Zone.Store() {
			p.Sites = append(p.Sites, t.Site)
		}
	}
	who, known := knownPerson(r)
	if p.Known, p.Account = known, who.account; known && err == nil {
		var all []Registration
		all, err = u.Owned(r.Context(), who.owner)
		for _, one := range all {
			p.All = append(p.All, row(one, u.now()))
		}
		p.Own = who.account && !has(all, u.o.Zone)
	}
	if !known {
		p.Login, p.Own = u.o.Login != nil, u.o.Login == nil
	}
	if err != nil {
		u.say(w, err)
		return
	}
	web.Write(w, http.StatusOK, p)
}

// root gives the certificate that browsers have to trust.
func (u *users) root(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/x-x509-ca-cert")
	w.Header().Set("Content-Disposition", `attachment; filename="`+string(u.o.Zone)+`.crt"`)
	_ = pem.Encode(w, &pem.Block{Type: "CERTIFICATE", Bytes: u.o.Root}) // the client is gone if it fails
}

// get registers for a browser, and for somebody new a pseudonym of the store too if she wants it.
func (u *users) get(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, mostForm)
	site, own := r.PostFormValue("site"), r.PostFormValue("own")
	p, err := u.getBoth(r, site, own != "")
	if slow := (*tooFast)(nil); errors.As(err, &slow) && slow.puzzle != nil {
		web.Write(w, http.StatusTooManyRequests, web.Work{Site: site, Own: own, Puzzle: *slow.puzzle})
		return
	}
	if err != nil {
		u.say(w, err)
		return
	}
	web.Write(w, http.StatusCreated, p)
}

func (u *users) getBoth(r *http.Request, site string, own bool) (p web.Made, err error) {
	if _, err := u.hosted(r.Context(), site); err != nil {
		return p, err
	}
	var proof *Proof
	if puzzle := r.PostFormValue("puzzle"); puzzle != "" {
		proof = &Proof{puzzle, r.PostFormValue("answer")}
	}
	lacks, err := u.lacksEntrance(r)
	if err != nil {
		return p, err
	}
	who, _, err := u.who(r, proof)
	if err != nil {
		return p, err
	}
	p = web.Made{Zone: string(u.o.Zone), Limited: u.limited, Passphrase: newPassphrase(), Browser: web.BrowserOf(r.UserAgent()), Browsers: web.Browsers}
	made, file, err := u.registerBrowser(r.Context(), site, who.owner, p.Passphrase)
	if err != nil {
		return p, err
	}
	p.Pseudonym = row(made, u.now())
	p.Files = append(p.Files, webFile(made.Site, file, made.Site))
	if !own || !lacks || made.Site == u.o.Zone.Store() {
		return p, nil
	}
	entrance, file, err := u.registerBrowser(r.Context(), u.o.Zone.Store(), who.owner, p.Passphrase)
	if err != nil { // the first one is made: nobody else has its key
		_, err = u.told(err)
		p.NoOwn = err.Error()
		return p, nil
	}
	at := row(entrance, u.now())
	p.Own = &at
	p.Files = append(p.Files, webFile(entrance.Site, file, "this store, and for links between sites"))
	return p, nil
}

func webFile(site string, content []byte, use string) web.File {
	return web.File{Name: site + ".p12", For: use, URL: "data:application/x-pkcs12;base64," + base64.StdEncoding.EncodeToString(content)}
}

// revoke ends a pseudonym. One who revoked her pseudonym of the store has no way back to its pages.
func (u *users) revoke(w http.ResponseWriter, r *http.Request, o pseudonym.Owner) error {
	p, err := u.own(r.Context(), r.PostFormValue("name"), o)
	if err != nil {
		return err
	}
	if err := u.Revoke(r.Context(), r.PostFormValue("name"), o); err != nil {
		return err
	}
	if p.Site == u.o.Zone.Store() {
		web.Write(w, http.StatusOK, web.Message{Title: "Your pseudonym of this store ended", Text: "The others work until they end. You cannot renew or revoke them any more."})
		return nil
	}
	http.Redirect(w, r, "/", http.StatusSeeOther)
	return nil
}
