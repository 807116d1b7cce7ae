package store

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
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

// Users serves people: POST /v1/pseudonyms registers. A client that comes by its pseudonym of the store, whose key owner returns the
// person of, lists (GET /v1/pseudonyms), renews (POST /v1/pseudonyms/NAME/renew) and revokes (DELETE /v1/pseudonyms/NAME) hers. Pages
// of other sites cannot make a browser do any of that.
func (s *Store) Users(owner func(*http.Request) (pseudonym.Owner, bool)) http.Handler {
	u := &users{Store: s, owner: owner, strangers: connlimit.NewFailures()}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/pseudonyms", u.register)
	mux.HandleFunc("GET /v1/pseudonyms", u.known(func(r *http.Request, o pseudonym.Owner) (any, error) { return s.Owned(r.Context(), o) }))
	mux.HandleFunc("POST /v1/pseudonyms/{name}/renew", u.known(func(r *http.Request, o pseudonym.Owner) (any, error) {
		return s.Renew(r.Context(), r.PathValue("name"), o)
	}))
	mux.HandleFunc("DELETE /v1/pseudonyms/{name}", u.known(func(r *http.Request, o pseudonym.Owner) (any, error) {
		return struct{}{}, s.Revoke(r.Context(), r.PathValue("name"), o)
	}))
	return http.NewCrossOriginProtection().Handler(mux)
}

type users struct {
	*Store
	owner     func(*http.Request) (pseudonym.Owner, bool)
	strangers *connlimit.Failures // registrations by source, of people who have no pseudonym yet
}

func (u *users) register(w http.ResponseWriter, r *http.Request) {
	owner, known := u.owner(r)
	if !known {
		owner = pseudonym.NewOwner()
		if from, err := netip.ParseAddrPort(r.RemoteAddr); err != nil || !u.strangers.Take(connlimit.Source(from.Addr())) {
			u.fail(w, http.StatusTooManyRequests, &errhint.Error{What: "the registration", Why: "there were too many from your address", Hint: "try again in a minute"})
			return
		}
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
		owner, ok := u.owner(r)
		if !ok {
			u.fail(w, http.StatusForbidden, &errhint.Error{What: "the request", Why: "the store does not know you", Hint: "come by your pseudonym of the store"})
			return
		}
		got, err := f(r, owner)
		u.answer(w, http.StatusOK, got, err)
	}
}

// answer writes a result, or why there is none. Faults of the store itself are for its operator.
func (s *Store) answer(w http.ResponseWriter, status int, got any, err error) {
	var told *errhint.Error
	switch {
	case err == nil:
		writeJSON(w, status, got)
	case errors.Is(err, ErrNoTenant), errors.Is(err, pseudonym.ErrNone):
		s.fail(w, http.StatusNotFound, err)
	case errors.Is(err, ErrTooMany):
		s.fail(w, http.StatusTooManyRequests, err)
	case errors.As(err, &told):
		s.fail(w, http.StatusBadRequest, err)
	default:
		s.o.Log.Error("a request failed", "error", err)
		s.fail(w, http.StatusServiceUnavailable, &errhint.Error{What: "the store", Why: "its database does not answer", Hint: "try again later"})
	}
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
	return sha256.Sum256(q.RawSubjectPublicKeyInfo), nil
}
