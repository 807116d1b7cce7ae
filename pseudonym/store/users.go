package store

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"heddle/internal/connlimit"
	"heddle/internal/errhint"
	"heddle/pseudonym"
	"heddle/pseudonym/ca"
	"heddle/pseudonym/login"
	"heddle/pseudonym/web"
	"heddle/pseudonym/work"
)

// mostRequest is the size of a request in bytes.
const mostRequest = 16 << 10

// Problem is the answer to a request that failed.
type Problem struct {
	Error string `json:"error"`
	Hint  string `json:"hint,omitempty"`
	// Work is a puzzle. A request with its answer is served. Login is the page where a person gets a code for a program of hers.
	Work  *work.Puzzle `json:"work,omitempty"`
	Login string       `json:"login,omitempty"`
}

// Request asks for a pseudonym. Its certificate request (PKCS #10, in DER) shows that the client has the key.
type Request struct {
	Site    string `json:"site"`
	Request []byte `json:"request"`
	Proof   *Proof `json:"proof,omitempty"`
}

// programs is what the paths begin with that answer in JSON.
const programs = "/v1/"

// Users serves people, with pages for their browsers and with JSON: POST /v1/pseudonyms registers. Those of whom [By] says who they are
// list (GET /v1/pseudonyms), renew (POST /v1/pseudonyms/NAME/renew) and revoke (DELETE /v1/pseudonyms/NAME) theirs. Pages of other
// sites cannot make a browser do any of that.
func (s *Store) Users() http.Handler {
	u := &users{Store: s, strangers: connlimit.NewFailures()}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/pseudonyms", u.register)
	mux.HandleFunc("GET /v1/pseudonyms", u.known(func(r *http.Request, o pseudonym.Owner) (any, error) { return s.Owned(r.Context(), o) }))
	mux.HandleFunc("POST /v1/pseudonyms/{name}/renew", u.known(func(r *http.Request, o pseudonym.Owner) (any, error) {
		return s.Renew(r.Context(), r.PathValue("name"), o)
	}))
	mux.HandleFunc("DELETE /v1/pseudonyms/{name}", u.known(func(r *http.Request, o pseudonym.Owner) (any, error) {
		return struct{}{}, s.Revoke(r.Context(), r.PathValue("name"), o)
	}))
	u.pages(mux)
	return http.NewCrossOriginProtection().Handler(u.withAccount(mux))
}

type users struct {
	*Store
	strangers *connlimit.Failures // registrations by source, of people who have no pseudonym yet
}

func (u *users) register(w http.ResponseWriter, r *http.Request) {
	var q Request
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, mostRequest)).Decode(&q); err != nil {
		u.fail(w, http.StatusBadRequest, &errhint.Error{What: "the request", Why: "it is no JSON of the right form", Err: err})
		return
	}
	client, err := keyOf(q.Request)
	if err != nil {
		u.fail(w, http.StatusBadRequest, err)
		return
	}
	made, err := u.registerOne(r, q, client)
	u.answer(w, http.StatusCreated, made, err)
}

// registerOne registers for whoever asks. What is wrong with the site costs nobody a place or a proof.
func (u *users) registerOne(r *http.Request, q Request, client ca.KeyID) (made Registration, err error) {
	if _, err := u.hosted(r.Context(), q.Site); err != nil {
		return made, err
	}
	p, _, err := u.who(r, q.Proof)
	if err != nil {
		return made, err
	}
	return u.Register(r.Context(), q.Site, client, p.owner)
}

// known serves people who come by a pseudonym of the store.
func (u *users) known(f func(*http.Request, pseudonym.Owner) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		owner, ok := owner(r)
		if !ok {
			u.fail(w, http.StatusForbidden, &errhint.Error{What: "the request", Why: "the store does not know you", Hint: "come by your pseudonym of the store"})
			return
		}
		got, err := f(r, owner)
		u.answer(w, http.StatusOK, got, err)
	}
}

// answer writes a result, or why there is none.
func (s *Store) answer(w http.ResponseWriter, status int, got any, err error) {
	if err != nil {
		status, err = s.told(err)
		p := Problem{Error: err.Error(), Hint: errhint.Of(err)}
		if slow := (*tooFast)(nil); errors.As(err, &slow) {
			p.Work = slow.puzzle
		}
		if errors.Is(err, errLogin) {
			p.Login = "https://" + s.o.Zone.Store() + terminalPath
		}
		writeJSON(w, status, p)
		return
	}
	writeJSON(w, status, got)
}

// Fail tells whoever makes a request why it failed: on a page, or to a program in JSON.
func (s *Store) Fail(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case r.URL.Path == web.StylePath: // of that page
		web.Style(w, r)
	case strings.HasPrefix(r.URL.Path, programs):
		s.answer(w, 0, nil, err)
	default:
		s.say(w, err)
	}
}

// told returns what a person may know of an error. Faults of the store itself are for its operator.
func (s *Store) told(err error) (status int, says error) {
	var own *errhint.Error
	var slow *tooFast
	var away login.ErrProvider
	switch {
	case errors.Is(err, ErrNoTenant), errors.Is(err, pseudonym.ErrNone):
		return http.StatusNotFound, err
	case errors.Is(err, ErrTooMany), errors.As(err, &slow):
		return http.StatusTooManyRequests, err
	case errors.Is(err, ErrReplayed):
		return http.StatusConflict, err
	case errors.Is(err, errLogin):
		return http.StatusUnauthorized, err
	case errors.Is(err, ca.ErrClock):
		s.note(Failed)
		s.o.Log.Error("a request failed", "error", err)
		return http.StatusServiceUnavailable, &errhint.Error{What: "the store", Why: "its clock is wrong, or its issuing certificate ended", Hint: "tell the operator of the cloud"}
	case errors.As(err, &away):
		s.note(Failed)
		s.o.Log.Error("a login failed", "error", away.Err)
		return http.StatusBadGateway, err
	case errors.As(err, &own):
		return http.StatusBadRequest, err
	}
	s.note(Failed)
	s.o.Log.Error("a request failed", "error", err)
	return http.StatusServiceUnavailable, &errhint.Error{What: "the store", Why: "its database does not answer", Hint: "try again later"}
}

func (s *Store) fail(w http.ResponseWriter, status int, err error) {
	writeJSON(w, status, Problem{Error: err.Error(), Hint: errhint.Of(err)})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client is gone if it fails
}

// keyOf checks a certificate request, and returns the key that signed it.
func keyOf(der []byte) (id ca.KeyID, err error) {
	refuse := func(why string) (ca.KeyID, error) {
		return id, &errhint.Error{What: "the certificate request", Why: why, Hint: "make one with a key of ECDSA on P-256"}
	}
	q, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return refuse("it cannot be read")
	}
	if key, ok := q.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve != elliptic.P256() {
		return refuse("its key is of another kind")
	}
	if q.CheckSignature() != nil {
		return refuse("its key did not sign it")
	}
	return ca.KeyOfPublic(q.RawSubjectPublicKeyInfo), nil
}
