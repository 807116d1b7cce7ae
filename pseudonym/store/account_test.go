package store

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/oauth2-proxy/mockoidc"

	"heddle/internal/connlimit"
	"heddle/pseudonym/ca/catest"
	"heddle/pseudonym/login"
	"heddle/pseudonym/work"
)

// accounts is a store whose people need an account of a provider that runs.
type accounts struct {
	*shelf
	provider *mockoidc.MockOIDC
	h        http.Handler
}

func newAccounts(t *testing.T) *accounts {
	t.Helper()
	provider, err := mockoidc.Run()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = provider.Shutdown() })
	a := &accounts{shelf: newShelf(t), provider: provider}
	a.o.Login, err = login.New(login.Options{Issuer: provider.Issuer(), Client: provider.ClientID, Secret: provider.ClientSecret,
		Redirect: "https://" + zone.Store() + LoginDonePath, Key: bytes.Repeat([]byte{1}, login.KeySize)})
	if err != nil {
		t.Fatal(err)
	}
	a.h = a.Users()
	return a
}

// browser keeps the cookies of the store.
type browser struct {
	a       *accounts
	cookies map[string]*http.Cookie
}

func (b *browser) do(method, path string, form url.Values) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "https://"+zone.Store()+path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for _, c := range b.cookies {
		r.AddCookie(c)
	}
	w := send(b.a.h, r, nil)
	for _, c := range w.Result().Cookies() {
		if b.cookies[c.Name] = c; c.MaxAge < 0 {
			delete(b.cookies, c.Name)
		}
	}
	return w
}

// login logs an account in, and returns where the browser comes to.
func (b *browser) login(t *testing.T, subject, path string) string {
	t.Helper()
	b.a.provider.QueueUser(&mockoidc.MockUser{Subject: subject})
	w := b.do(http.MethodGet, path, nil)
	if w.Code != http.StatusSeeOther || !strings.HasPrefix(w.Header().Get("Location"), b.a.provider.Issuer()) {
		t.Fatalf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	at := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := at.Get(w.Header().Get("Location"))
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	back, err := answer.Location()
	if err != nil || back.Host != zone.Store() || back.Path != LoginDonePath {
		t.Fatalf("%v, %v", back, err)
	}
	w = b.do(http.MethodGet, back.RequestURI(), nil)
	if w.Code != http.StatusSeeOther {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return w.Header().Get("Location")
}

// With accounts one person is one account, whatever addresses she has and however often she begins anew.
func TestAccounts(t *testing.T) {
	a := newAccounts(t)
	stranger := &browser{a, map[string]*http.Cookie{}}
	if w := stranger.do(http.MethodGet, "/?site=news.example", nil); !strings.Contains(w.Body.String(), `href="/login?site=news.example"`) || strings.Contains(w.Body.String(), `action="/get"`) {
		t.Errorf("%s", w.Body)
	}
	site := url.Values{"site": {"news.example"}, "own": {"yes"}}
	if w := stranger.do(http.MethodPost, "/get", site); w.Code != http.StatusUnauthorized {
		t.Errorf("without a login: %d", w.Code)
	}
	alice := &browser{a, map[string]*http.Cookie{}}
	if to := alice.login(t, "alice", "/login?site=news.example"); to != SitePath("news.example") {
		t.Errorf("leads to %s", to)
	}
	// The first time she gets a pseudonym of the store too, which is hers.
	if files := browse(t, alice.do(http.MethodPost, "/get", site)); len(files) != 2 {
		t.Errorf("%v", files)
	}
	again := &browser{a, map[string]*http.Cookie{}}
	again.login(t, "alice", "/login")
	home := again.do(http.MethodGet, "/", nil).Body.String()
	if len(nameInURL.FindAllString(home, -1)) != 2 || strings.Contains(home, `name="own"`) {
		t.Errorf("the account does not bring hers back:\n%s", home)
	}
	if files := browse(t, again.do(http.MethodPost, "/get", site)); len(files) != 1 {
		t.Errorf("%v", files)
	}
	if w := alice.do(http.MethodPost, "/get", site); w.Code != http.StatusTooManyRequests || strings.Contains(w.Body.String(), "work.js") { // three are what she may have
		t.Errorf("beyond the quota: %d", w.Code)
	}
	bob := &browser{a, map[string]*http.Cookie{}}
	bob.login(t, "bob", "/login")
	if home := bob.do(http.MethodGet, "/", nil).Body.String(); len(nameInURL.FindAllString(home, -1)) != 0 || !strings.Contains(home, `name="own"`) {
		t.Errorf("another account:\n%s", home)
	}
	if bob.do(http.MethodPost, "/logout", nil); len(bob.cookies) != 0 {
		t.Errorf("%v", bob.cookies)
	}
	if n := a.Counts(); n[LoggedIn] != 3 || n[RefusedLogin] != 1 || n[RefusedQuota] != 1 {
		t.Errorf("%v", n)
	}
	if to := alice.do(http.MethodGet, "/login?to=https://elsewhere.example", nil).Header().Get("Location"); strings.Contains(to, "elsewhere") {
		t.Errorf("a login leads to %s", to)
	}
	if to := alice.login(t, "alice", "/login?to=https://elsewhere.example"); !strings.HasPrefix(to, "/?") {
		t.Errorf("a login leads to %s", to)
	}
}

var codeText = regexp.MustCompile(`id="code">([^<]+)<`)

// A program asks for a person who gives it the code of the page.
func TestCodeForTerminal(t *testing.T) {
	a := newAccounts(t)
	w := post(a.h, "198.51.100.1:1", request(t, "news.example", catest.NewKey(t)))
	var p Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != http.StatusUnauthorized || p.Login != "https://"+zone.Store()+terminalPath {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	b := &browser{a, map[string]*http.Cookie{}}
	w = b.do(http.MethodGet, terminalPath, nil)
	if to := b.login(t, "alice", w.Header().Get("Location")); to != terminalPath {
		t.Errorf("leads to %s", to)
	}
	code := codeText.FindStringSubmatch(b.do(http.MethodGet, terminalPath, nil).Body.String())
	for by, want := range map[string]int{code[1]: http.StatusCreated, "x" + code[1]: http.StatusUnauthorized, "": http.StatusUnauthorized} {
		r := httptest.NewRequest(http.MethodPost, "/v1/pseudonyms", strings.NewReader(request(t, "news.example", catest.NewKey(t))))
		r.Header.Set("Authorization", "Bearer "+by)
		w := httptest.NewRecorder()
		if a.h.ServeHTTP(w, r); w.Code != want {
			t.Errorf("%d %s, want %d", w.Code, w.Body, want)
		}
	}
}

// A provider that is away is not the person's fault.
func TestProviderAway(t *testing.T) {
	a := newAccounts(t)
	if err := a.provider.Shutdown(); err != nil {
		t.Fatal(err)
	}
	w := (&browser{a, map[string]*http.Cookie{}}).do(http.MethodGet, "/login", nil)
	if w.Code != http.StatusBadGateway || !strings.Contains(w.Body.String(), "try again later") || strings.Contains(w.Body.String(), "127.0.0.1") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

var puzzleText = regexp.MustCompile(`data-text="([^"]+)" data-bits="8" data-parts="16"|name="(site|own)" value="([^"]*)"`)

// A browser at a busy address gets a page with a puzzle, which keeps what she wanted.
func TestPuzzleOfThePages(t *testing.T) {
	s := newShelf(t)
	s.o.Work = work.MinBits + 4
	h := s.Users()
	form := url.Values{"site": {"news.example"}, "own": {"yes"}}
	var w *httptest.ResponseRecorder
	for range connlimit.FailuresAtOnce + 1 {
		w = submit(h, "/get", nil, form)
	}
	found := puzzleText.FindAllStringSubmatch(w.Body.String(), -1)
	if w.Code != http.StatusTooManyRequests || len(found) != 3 || found[1][3] != "news.example" || found[2][3] != "yes" {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	answer, err := work.Solve(t.Context(), work.Puzzle{Text: found[0][1], Bits: 8, Parts: 16})
	if err != nil {
		t.Fatal(err)
	}
	form.Set("puzzle", found[0][1])
	form.Set("answer", answer)
	if files := browse(t, submit(h, "/get", nil, form)); len(files) != 2 {
		t.Errorf("%v", files)
	}
	if w := submit(h, "/get", nil, form); w.Code != http.StatusBadRequest {
		t.Errorf("the answer again: %d", w.Code)
	}
	if w := show(h, "/work.js", nil); w.Code != http.StatusOK || !strings.Contains(w.Header().Get("Content-Type"), "javascript") {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

// Files that are made are given, also if the pseudonym of the store cannot be made beside.
func TestFirstFilesAreNotLost(t *testing.T) {
	s := newShelf(t)
	s.o.Most = 1
	w := submit(s.Users(), "/get", nil, url.Values{"site": {"news.example"}, "own": {"yes"}})
	if files := browse(t, w); len(files) != 1 || !strings.Contains(w.Body.String(), "could not be made") {
		t.Errorf("%v\n%s", files, w.Body)
	}
}
