package login

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/oauth2-proxy/mockoidc"

	"heddle/internal/errhint"
	"heddle/pseudonym"
)

// counter is a store with a login, and a provider beside it.
type counter struct {
	*Login
	provider *mockoidc.MockOIDC
	url      string
	web      *http.Client // that trusts the store
	keys     []byte       // that the provider shows, if not those by which it signs
	seen     []string     // requests to the provider, with what they say
}

// newCounter starts both. The provider is strict: it takes codes for the one address of the store alone.
func newCounter(t *testing.T) *counter {
	t.Helper()
	c := &counter{}
	mux := http.NewServeMux()
	web := httptest.NewTLSServer(mux)
	t.Cleanup(web.Close)
	c.url, c.web = web.URL, web.Client()
	var err error
	if c.provider, err = mockoidc.NewServer(nil); err != nil {
		t.Fatal(err)
	}
	redirect := web.URL + "/done"
	if err := c.provider.AddMiddleware(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = r.ParseForm()
			c.seen = append(c.seen, r.URL.Path+"?"+r.Form.Encode())
			if c.keys != nil && strings.HasSuffix(r.URL.Path, "/jwks.json") {
				_, _ = w.Write(c.keys)
				return
			}
			asks := strings.HasSuffix(r.URL.Path, "/authorize") || strings.HasSuffix(r.URL.Path, "/token")
			if asks && r.Form.Get("redirect_uri") != redirect {
				http.Error(w, "redirect_uri", http.StatusBadRequest)
				return
			}
			next.ServeHTTP(w, r)
		})
	}); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.provider.Start(l, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.provider.Shutdown() })
	if c.Login, err = New(Options{Issuer: c.provider.Issuer(), Client: c.provider.ClientID, Secret: c.provider.ClientSecret, Redirect: redirect, Key: bytes.Repeat([]byte{7}, KeySize)}); err != nil {
		t.Fatal(err)
	}
	mux.HandleFunc("/login", func(w http.ResponseWriter, r *http.Request) {
		if err := c.Begin(w, r, "/welcome"); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	})
	mux.HandleFunc("/done", func(w http.ResponseWriter, r *http.Request) {
		to, err := c.Done(w, r)
		if err != nil {
			http.Error(w, err.Error()+"; "+errhint.Of(err), http.StatusForbidden)
			return
		}
		http.Redirect(w, r, to, http.StatusSeeOther)
	})
	mux.HandleFunc("/welcome", func(w http.ResponseWriter, r *http.Request) {
		o, ok := c.Account(r)
		if !ok {
			http.Error(w, "nobody", http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte(c.Code(o)))
	})
	return c
}

// browser has cookies of its own.
func (c *counter) browser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Transport: c.web.Transport, Jar: jar}
}

func get(t *testing.T, by *http.Client, url string) (status int, text string) {
	t.Helper()
	r, err := by.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(body)
}

// account returns who a code is of.
func (c *counter) account(t *testing.T, code string) pseudonym.Owner {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Authorization", "Bearer "+code)
	o, ok := c.Account(r)
	if !ok {
		t.Fatalf("nobody has the code %q", code)
	}
	return o
}

// login logs an account in, and returns the person.
func (c *counter) login(t *testing.T, by *http.Client, subject string) pseudonym.Owner {
	t.Helper()
	c.provider.QueueUser(&mockoidc.MockUser{Subject: subject, Email: subject + "@example.com"})
	status, code := get(t, by, c.url+"/login")
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, code)
	}
	return c.account(t, code)
}

func TestLogin(t *testing.T) {
	c := newCounter(t)
	if status, _ := get(t, c.browser(t), c.url+"/welcome"); status != http.StatusUnauthorized {
		t.Errorf("without a login: %d", status)
	}
	alice := c.login(t, c.browser(t), "alice")
	if again := c.login(t, c.browser(t), "alice"); again != alice || alice == (pseudonym.Owner{}) {
		t.Errorf("one account is %x and %x", alice, again)
	}
	if bob := c.login(t, c.browser(t), "bob"); bob == alice {
		t.Error("two accounts are one person")
	}
	another, err := New(Options{Key: bytes.Repeat([]byte{8}, KeySize)})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Authorization", "Bearer "+c.Code(alice))
	if _, ok := another.Account(r); ok {
		t.Error("a code of another cloud is taken")
	}
	if _, ok := c.Account(r); !ok {
		t.Error("a code is not taken")
	}
	c.now = func() time.Time { return time.Now().Add(codeFor) }
	if _, ok := c.Account(r); ok {
		t.Error("an old code is taken")
	}
	// The store asks the provider for no name.
	for _, one := range c.seen {
		if strings.Contains(one, "email") || strings.Contains(one, "profile") {
			t.Errorf("asked for more than the account: %s", one)
		}
	}
}

// What somebody else could make a browser open does not log it in, nor into an account of his.
func TestLoginRefuses(t *testing.T) {
	c := newCounter(t)
	stop := func(by *http.Client) (*http.Client, string) { // before the store takes the answer
		held := *by
		var answer string
		held.CheckRedirect = func(q *http.Request, _ []*http.Request) error {
			if q.URL.Path == "/done" {
				answer = q.URL.String()
				return http.ErrUseLastResponse
			}
			return nil
		}
		c.provider.QueueUser(&mockoidc.MockUser{Subject: "mallory"})
		r, err := held.Get(c.url + "/login")
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		return by, answer
	}
	_, mallorys := stop(c.browser(t))
	victim, own := stop(c.browser(t))
	changed := func(key, value string) string {
		u, err := url.Parse(own)
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		q.Set(key, value)
		u.RawQuery = q.Encode()
		return u.String()
	}
	for name, by := range map[string]*http.Client{"begun by another browser": victim, "not begun": c.browser(t)} {
		if status, text := get(t, by, mallorys); status != http.StatusForbidden || !strings.Contains(text, "did not begin") {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	if status, text := get(t, victim, own); status != http.StatusForbidden {
		t.Errorf("after a wrong answer: %d %s", status, text)
	}
	for name, c2 := range map[string]struct{ key, value, says string }{"refused": {"error", "access_denied", "refused it"}, "another code": {"code", "x", "cannot be trusted"}} {
		if victim, own = stop(c.browser(t)); own == "" {
			t.Fatal("no answer")
		}
		if status, text := get(t, victim, changed(c2.key, c2.value)); status != http.StatusForbidden || !strings.Contains(text, c2.says) {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	// A code counts once.
	victim, own = stop(c.browser(t))
	first := *victim
	if status, _ := get(t, &first, own); status != http.StatusOK {
		t.Errorf("%d", status)
	}
	if status, _ := get(t, victim, own); status != http.StatusForbidden {
		t.Errorf("the same answer again: %d", status)
	}
}

// A token that another provider signed, for another client, or for another login opens nothing.
func TestTokens(t *testing.T) {
	for name, spoil := range map[string]func(c *counter){
		"signed by another key": func(c *counter) {
			own, err := c.provider.Keypair.JWKS()
			if err != nil {
				t.Fatal(err)
			}
			c.keys = own
			if c.provider.Keypair, err = mockoidc.RandomKeypair(2048); err != nil {
				t.Fatal(err)
			}
		},
		"ended":               func(c *counter) { c.now = func() time.Time { return time.Now().Add(time.Hour) } },
		"for another client":  func(c *counter) { c.o.Client = "another" },
		"with another secret": func(c *counter) { c.o.Secret = "another" },
	} {
		c := newCounter(t)
		spoil(c)
		c.provider.QueueUser(&mockoidc.MockUser{Subject: "alice"})
		if status, text := get(t, c.browser(t), c.url+"/login"); status == http.StatusOK {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// A provider that is away does not keep the store from its start, and is asked again.
func TestProviderIsAway(t *testing.T) {
	c := newCounter(t)
	good := c.o.Issuer
	c.o.Issuer = "http://127.0.0.1:1"
	if status, text := get(t, c.browser(t), c.url+"/login"); status != http.StatusBadGateway || strings.Contains(text, "127.0.0.1") {
		t.Errorf("%d %s", status, text)
	}
	err := c.Begin(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil), "/")
	if own := (ErrProvider{}); !errors.As(err, &own) || !strings.Contains(own.Err.Error(), "127.0.0.1") {
		t.Errorf("the operator is told %v", err)
	}
	c.o.Issuer = good
	c.login(t, c.browser(t), "alice")
}
