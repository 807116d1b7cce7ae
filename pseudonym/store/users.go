package store

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"

	"heddle/internal/connlimit"
	"heddle/internal/errhint"
	"heddle/pseudonym"
	"heddle/pseudonym/ca"
)

// mostRequest is the size of a request in bytes.
const mostRequest = 16 << 10

// Problem is the answer to a request that failed.
type Problem struct {
	Error string `json:"error"`
	Hint  string `json:"hint,omitempty"`
}

// Request asks for a pseudonym. Its certificate request (PKCS #10, in DER) shows that the client has the key.
type Request struct {
	Site    string `json:"site"`
	Request []byte `json:"request"`
}

// ownerKey is the key of the context's value that has the person who asks.
type ownerKey struct{}

// By says who makes a request: the person by whose pseudonym of the store it came.
func By(r *http.Request, o pseudonym.Owner) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), ownerKey{}, o))
}

func owner(r *http.Request) (o pseudonym.Owner, known bool) {
	o, known = r.Context().Value(ownerKey{}).(pseudonym.Owner)
	return o, known
}

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
	return http.NewCrossOriginProtection().Handler(mux)
}

type users struct {
	*Store
	strangers *connlimit.Failures // registrations by source, of people who have no pseudonym yet
}

// errTooFast says that strangers of one source register too often.
var errTooFast = &errhint.Error{What: "the registration", Why: "there were too many from your address", Hint: "try again in a minute"}

// person returns who registers. A stranger becomes a new person, if there were not too many of her source.
func (u *users) person(r *http.Request) (o pseudonym.Owner, known bool, err error) {
	if o, known = owner(r); known {
		return o, true, nil
	}
	if from, err := netip.ParseAddrPort(r.RemoteAddr); err != nil || !u.strangers.Take(connlimit.Source(from.Addr())) {
		return o, false, errTooFast
	}
	return pseudonym.NewOwner(), false, nil
}

func (u *users) register(w http.ResponseWriter, r *http.Request) {
	owner, _, err := u.person(r)
	if err != nil {
		u.answer(w, 0, nil, err)
		return
	}
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
	made, err := u.Register(r.Context(), q.Site, client, owner)
	u.answer(w, http.StatusCreated, made, err)
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
		s.fail(w, status, err)
		return
	}
	writeJSON(w, status, got)
}

// told returns what a person may know of an error. Faults of the store itself are for its operator.
func (s *Store) told(err error) (status int, says error) {
	var own *errhint.Error
	switch {
	case errors.Is(err, ErrNoTenant), errors.Is(err, pseudonym.ErrNone):
		return http.StatusNotFound, err
	case errors.Is(err, ErrTooMany), errors.Is(err, errTooFast):
		return http.StatusTooManyRequests, err
	case errors.As(err, &own):
		return http.StatusBadRequest, err
	}
	s.o.Log.Error("a request failed", "error", err)
	return http.StatusServiceUnavailable, &errhint.Error{What: "the store", Why: "its database does not answer", Hint: "try again later"}
}

func (s *Store) fail(w http.ResponseWriter, status int, err error) {
	writeJSON(w, status, Problem{err.Error(), errhint.Of(err)})
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
