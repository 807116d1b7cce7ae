package tenant

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"

	"heddle/pseudonym/mutual"
)

// formPath is where forms lead that would send to other sites of the cloud; the URL follows. The sidecar itself answers there.
const formPath = "/.well-known/heddle/form/"

// formTo replaces where a form sends to. ok is false for forms that stay as they are.
func (h *handler) formTo(u *url.URL, e *mutual.Entry) (to string, ok bool) {
	if _, ok := h.link(u, e); !ok {
		return "", false
	}
	return "https://" + h.zone.Name(e.Label) + formPath + base64.RawURLEncoding.EncodeToString([]byte(u.String())), true
}

// form leads what a form asks for to the linker, as a link would: a browser puts what was typed into the URL of this request. What other
// forms send stays here, since the linker leads people and not what they send.
func (h *handler) form(w http.ResponseWriter, r *http.Request, e *mutual.Entry) {
	text, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(r.URL.Path, formPath))
	if err != nil {
		http.NotFound(w, r)
		return
	}
	u, err := url.Parse(string(text))
	if err != nil {
		http.NotFound(w, r)
		return
	}
	u.RawQuery = r.URL.RawQuery
	to, ok := h.link(u, e)
	switch {
	case !ok:
		http.NotFound(w, r)
	case r.Method == http.MethodGet:
		w.Header().Set("Referrer-Policy", "same-origin")
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusSeeOther)
	default:
		http.Error(w, "This form would send what you typed to "+u.Hostname()+" by its plain name, which a network would see. Nothing was sent. Open your bookmark of that site.", http.StatusForbidden)
	}
}
