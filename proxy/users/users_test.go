package users

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"heddle/internal/connlimit"
	"heddle/internal/polltest"
	"heddle/path"
)

func init() { absentCost = bcrypt.MinCost }

func basic(name, password string) http.Header {
	return http.Header{"Proxy-Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte(name+":"+password))}}
}

func bearer(token string) http.Header {
	return http.Header{"Proxy-Authorization": {"Bearer " + token}}
}

func TestUsers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users")
	token, err := Add(file, "ann")
	if err != nil || !strings.HasPrefix(token, tokenPrefix) || len(token) < 40 {
		t.Fatal(token, err)
	}
	other, err := Add(file, "bob")
	if err != nil || other == token {
		t.Fatal(other, err)
	}
	hash, err := bcrypt.GenerateFromPassword([]byte("pass:word"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil || strings.Contains(string(data), token) {
		t.Fatalf("the token itself is kept: %v", err)
	}
	// As htpasswd writes it, with a comment.
	data = append(data, "# people\n\ncarl:"+strings.Replace(string(hash), "$2a$", "$2y$", 1)+"\n"...)
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	u, err := Load(file)
	if err != nil || u.Count() != 3 {
		t.Fatal(u, err)
	}
	for range 2 { // the second time from memory
		for name, c := range map[string]struct {
			header http.Header
			want   string
		}{
			"a token":                    {bearer(token), "ann"},
			"another token":              {bearer(other), "bob"},
			"a token with its name":      {basic("ann", token), "ann"},
			"a password":                 {basic("carl", "pass:word"), "carl"},
			"in the field for servers":   {http.Header{"Authorization": bearer(token)["Proxy-Authorization"]}, "ann"},
			"lower case":                 {http.Header{"Proxy-Authorization": {"bearer " + token}}, "ann"},
			"a token with another name":  {basic("bob", token), ""},
			"a wrong password":           {basic("carl", "password"), ""},
			"nobody":                     {basic("dora", "pass:word"), ""},
			"no name":                    {basic("", token), ""},
			"a hash for a token":         {bearer(strings.SplitN(string(data), ":", 3)[2][:64]), ""},
			"a password without a name":  {bearer("pass:word"), ""},
			"nothing":                    {http.Header{}, ""},
			"a very long one":            {bearer(strings.Repeat("x", 1<<20)), ""},
			"a password for a token's":   {basic("ann", ""), ""},
			"no scheme":                  {http.Header{"Proxy-Authorization": {token}}, ""},
			"one more byte":              {bearer(token + "x"), ""},
			"another scheme":             {http.Header{"Proxy-Authorization": {"Digest " + token}}, ""},
			"base64 that holds no colon": {http.Header{"Proxy-Authorization": {"Basic YW5u"}}, ""},
		} {
			got, err := u.CheckHeader(netip.Addr{}, c.header)
			if got != c.want || (err == nil) != (c.want != "") {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		}
	}
}

func TestUsersFollowTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users")
	ann, err := Add(file, "ann")
	if err != nil {
		t.Fatal(err)
	}
	u, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	u.now = func() time.Time { return now }
	check := func(token, want string) {
		t.Helper()
		now = now.Add(2 * lookAgain)
		if got, _ := u.CheckHeader(netip.Addr{}, bearer(token)); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	stamp := func() { // a file system may keep whole seconds only
		t.Helper()
		if err := os.Chtimes(file, now, now); err != nil {
			t.Fatal(err)
		}
	}
	check(ann, "ann")
	bob, err := Add(file, "bob")
	if err != nil {
		t.Fatal(err)
	}
	stamp()
	check(bob, "bob")
	check(ann, "ann")
	if err := Remove(file, "ann"); err != nil {
		t.Fatal(err)
	}
	stamp()
	check(ann, "")
	check(bob, "bob")
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Hour)
	stamp()
	check(bob, "") // others can read it: nobody is let in
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	check(bob, "bob")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	check(bob, "")
}

// Nobody at the same address locks the holder of a token out, and a password is not heard after too many wrong ones.
func TestStrangersDoNotLockATokenOut(t *testing.T) {
	u, token := withPassword(t)
	from := netip.MustParseAddr("127.0.0.1")
	for range connlimit.FailuresAtOnce {
		if _, err := u.Check(from, "ann", "guess"); !errors.Is(err, errCredential) {
			t.Fatal(err)
		}
	}
	if _, err := u.Check(from, "carl", "password"); !errors.Is(err, ErrBusy) {
		t.Errorf("a password after the guesses: %v", err)
	}
	for what, header := range map[string]http.Header{"bearer": bearer(token), "basic": basic("ann", token)} {
		if got, err := u.CheckHeader(from, header); got != "ann" || err != nil {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
	if got, err := u.Check(netip.MustParseAddr("127.0.0.2"), "carl", "password"); got != "carl" || err != nil {
		t.Errorf("from elsewhere: %q, %v", got, err)
	}
}

// A browser sends requests without credentials first, and then many at once with the right password.
func TestBrowsersDoNotGuess(t *testing.T) {
	u, _ := withPassword(t)
	from := netip.MustParseAddr("127.0.0.1")
	for range 2 * connlimit.FailuresAtOnce {
		if _, err := u.CheckHeader(from, http.Header{}); !errors.Is(err, ErrNoCredential) {
			t.Fatal(err)
		}
	}
	for range cap(u.slow) { // no password is compared
		u.slow <- struct{}{}
	}
	answers := make(chan error)
	for range 3 * connlimit.FailuresAtOnce {
		go func() {
			_, err := u.CheckHeader(from, basic("carl", "password"))
			answers <- err
		}()
	}
	polltest.Await(t, "a password is checked", func() bool {
		u.mu.Lock()
		defer u.mu.Unlock()
		return len(u.checking) == 1
	})
	for range cap(u.slow) {
		<-u.slow
	}
	for range 3 * connlimit.FailuresAtOnce {
		if err := <-answers; err != nil {
			t.Fatal(err)
		}
	}
}

// withPassword gives the users ann, with a token, and carl, whose password is "password".
func withPassword(t *testing.T) (u *Users, token string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "users")
	token, err := Add(file, "ann")
	if err != nil {
		t.Fatal(err)
	}
	hash, err := bcrypt.GenerateFromPassword([]byte("password"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(data, "carl:"+string(hash)+"\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if u, err = Load(file); err != nil {
		t.Fatal(err)
	}
	return u, token
}

func TestUserFiles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "users")
	for text, want := range map[string]string{
		"":                  "it names nobody",
		"# nobody\n":        "it names nobody",
		"ann\n":             "line 1 does not begin with a name",
		":" + hashPrefix:    "line 1 does not begin with a name",
		"ann:secret\n":      "line 1 holds no hash",
		"ann:sha256:abcd\n": "line 1 holds no hash",
		"\nann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n":                                         "line 2 holds no hash",
		"ann:$2a$31$abcdefghijklmnopqrstuuvbmZHgwLYmqr1DxqDM0yBy0OTmJJ1ZS\n":                "line 1 holds no hash",
		"ann:sha256:" + strings.Repeat("a", 64) + "\nann:sha256:" + strings.Repeat("b", 64): "line 2 names ann again",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Load(file)
		var e *path.Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(file); err == nil || !strings.Contains(err.Error(), "others can read it") {
		t.Errorf("%v", err)
	}
	if _, err := Add(file, "ann"); err == nil {
		t.Error("a user is added to a file that others can read")
	}
	if _, err := Load(filepath.Join(dir, "absent")); err == nil {
		t.Error("a file that is absent is read")
	}
	for _, name := range []string{"", "a b", "a:b", "a\nb", "-a", strings.Repeat("a", 65)} {
		if _, err := Add(filepath.Join(dir, "other"), name); err == nil {
			t.Errorf("%q is taken", name)
		}
	}
	if err := Remove(filepath.Join(dir, "other"), "ann"); err == nil {
		t.Error("nobody was removed")
	}
}

func FuzzUsers(f *testing.F) {
	f.Add([]byte("ann:sha256:"+strings.Repeat("a", 64)), "Basic YW5uOng=")
	f.Add([]byte("#\n\nbob:$2y$04$abcdefghijklmnopqrstuuvbmZHgwLYmqr1DxqDM0yBy0OTmJJ1ZS"), "Bearer x")
	f.Fuzz(func(t *testing.T, data []byte, field string) {
		list, err := parseUsers(data)
		if err != nil {
			return
		}
		for _, u := range list {
			if !userRule.MatchString(u.name) || !validHash(u.hash) {
				t.Errorf("%q", data)
			}
		}
		if name, secret := credential(field); len(name)+len(secret) > maxCredential {
			t.Errorf("%q", field)
		}
	})
}
