// Package login knows people by an account at the operator's OpenID Connect provider. It keeps no names: a person is a keyed hash of her
// account, and what a browser carries is sealed.
package login

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"heddle/internal/errhint"
	"heddle/pseudonym"
)

// Options configure a login.
type Options struct {
	Issuer   string // URL of the provider
	Client   string // how the provider knows the store
	Secret   string
	Redirect string // URL of [Login.Done] at the store
	Key      []byte // KeySize bytes, the same for all processes of a store
	HTTP     *http.Client
}

// Times.
const (
	loginFor   = 10 * time.Minute // for one login
	accountFor = time.Hour
	codeFor    = 10 * time.Minute
	patience   = 10 * time.Second // for the provider
)

// Cookies. Browsers keep those of this prefix to one host and to HTTPS.
const (
	loginCookie   = "__Host-login"
	accountCookie = "__Host-account"
)

// Login is safe for concurrent use.
type Login struct {
	o   Options
	box *box
	now func() time.Time

	mu       sync.Mutex
	provider *oidc.Provider // nil before it was reached
}

// New returns a login. It asks the provider only when somebody logs in.
func New(o Options) (*Login, error) {
	b, err := newBox(o.Key)
	if err != nil {
		return nil, err
	}
	if o.HTTP == nil {
		o.HTTP = &http.Client{Timeout: patience}
	}
	return &Login{o: o, box: b, now: time.Now}, nil
}

// reach returns the provider's description of itself.
func (l *Login) reach(ctx context.Context) (*oidc.Provider, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.provider != nil {
		return l.provider, nil
	}
	// The provider's keys are fetched again later, so they may not depend on this request.
	p, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), l.o.HTTP), l.o.Issuer)
	if err != nil {
		return nil, &errhint.Error{What: "the login", Why: "the provider of accounts does not answer", Hint: "try again later", Err: ErrProvider{err}}
	}
	l.provider = p
	return p, nil
}

// ErrProvider is why a provider cannot be used. It is for the operator.
type ErrProvider struct{ Err error }

// Error does not name the provider.
func (ErrProvider) Error() string { return "see the store's log" }

// Unwrap returns the cause.
func (e ErrProvider) Unwrap() error { return e.Err }

func (l *Login) config(p *oidc.Provider) *oauth2.Config {
	return &oauth2.Config{ClientID: l.o.Client, ClientSecret: l.o.Secret, Endpoint: p.Endpoint(), RedirectURL: l.o.Redirect, Scopes: []string{oidc.ScopeOpenID}}
}

// begun is what a browser keeps while it is at the provider.
type begun struct{ State, Nonce, Verifier, To string }

// Begin leads a browser to the provider. After the login it comes to the path to.
func (l *Login) Begin(w http.ResponseWriter, r *http.Request, to string) error {
	p, err := l.reach(r.Context())
	if err != nil {
		return err
	}
	b := begun{rand.Text(), rand.Text(), oauth2.GenerateVerifier(), to}
	setCookie(w, loginCookie, l.box.seal("login", b, l.now().Add(loginFor)), loginFor)
	http.Redirect(w, r, l.config(p).AuthCodeURL(b.State, oidc.Nonce(b.Nonce), oauth2.S256ChallengeOption(b.Verifier)), http.StatusSeeOther)
	return nil
}

// errNotBegun says that an answer of a provider belongs to no login of this browser.
var errNotBegun = &errhint.Error{What: "the login", Why: "this browser did not begin it, or too long ago", Hint: "log in again"}

// Done takes the provider's answer, by which the browser comes back. From then on [Login.Account] knows the person. It returns the path
// that [Login.Begin] was given.
func (l *Login) Done(w http.ResponseWriter, r *http.Request) (to string, err error) {
	var b begun
	if c, err := r.Cookie(loginCookie); err != nil || !l.box.open("login", c.Value, &b, l.now()) {
		return "", errNotBegun
	}
	setCookie(w, loginCookie, "", -1) // one answer for one login
	q := r.URL.Query()
	if subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(b.State)) != 1 {
		return "", errNotBegun
	}
	if q.Get("error") != "" {
		return "", &errhint.Error{What: "the login", Why: "the provider of accounts refused it", Hint: "log in again"}
	}
	token, err := l.exchange(r.Context(), q.Get("code"), b)
	if err != nil {
		return "", &errhint.Error{What: "the login", Why: "the provider's answer cannot be trusted", Hint: "log in again", Err: ErrProvider{err}}
	}
	setCookie(w, accountCookie, l.box.seal("account", l.person(token), l.now().Add(accountFor)), accountFor)
	return b.To, nil
}

// exchange gets the token of an account and checks it.
func (l *Login) exchange(ctx context.Context, code string, b begun) (*oidc.IDToken, error) {
	p, err := l.reach(ctx)
	if err != nil {
		return nil, err
	}
	ctx = oidc.ClientContext(ctx, l.o.HTTP)
	got, err := l.config(p).Exchange(ctx, code, oauth2.VerifierOption(b.Verifier))
	if err != nil {
		return nil, err
	}
	raw, ok := got.Extra("id_token").(string)
	if !ok {
		return nil, errors.New("it has no token of the account")
	}
	token, err := p.Verifier(&oidc.Config{ClientID: l.o.Client, Now: l.now}).Verify(ctx, raw)
	if err != nil {
		return nil, err
	}
	if token.Subject == "" || subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(b.Nonce)) != 1 {
		return nil, errors.New("its token is of another login")
	}
	return token, nil
}

// person is what is kept of an account. Without the key nobody can tell whether an account is that of a person.
func (l *Login) person(t *oidc.IDToken) (o pseudonym.Owner) {
	h := hmac.New(sha256.New, l.o.Key)
	h.Write([]byte("account\x00" + t.Issuer + "\x00" + t.Subject))
	copy(o[:], h.Sum(nil))
	return o
}

// Account returns the person who logged in with this browser, or whose code a program shows.
func (l *Login) Account(r *http.Request) (o pseudonym.Owner, ok bool) {
	if c, err := r.Cookie(accountCookie); err == nil && l.box.open("account", c.Value, &o, l.now()) {
		return o, true
	}
	if code, is := bearer(r); is && l.box.open("code", code, &o, l.now()) {
		return o, true
	}
	return pseudonym.Owner{}, false
}

// Code returns what a person types into a program of hers, which then may ask for her for some minutes.
func (l *Login) Code(o pseudonym.Owner) string { return l.box.seal("code", o, l.now().Add(codeFor)) }

// Forget ends the login of a browser.
func (l *Login) Forget(w http.ResponseWriter) { setCookie(w, accountCookie, "", -1) }

// setCookie keeps a value for a while. Lax, since the provider's answer comes by a link of another site.
func setCookie(w http.ResponseWriter, name, value string, life time.Duration) {
	seconds := int(life / time.Second)
	if life < 0 {
		seconds = -1
	}
	http.SetCookie(w, &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: seconds, Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode})
}
