package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRulesOfAFileHoldForEachSession(t *testing.T) {
	file := filepath.Join(t.TempDir(), "heddle.toml")
	text := `
via = ["home=src:127.0.0.2", "lte=src:127.0.0.3", "office=src:127.0.0.4"]
secret = ["office=office.secret"]
[[rule]]
when = "first 10p"
use = "office"
[[split]]
listen = "127.0.0.1:0"
name = "a"
to = "192.0.2.1:443"
via = ["home", "lte"]
handshake-via = "office"
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(filepath.Dir(file), "office.secret")
	if err := os.WriteFile(secret, []byte("token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, problems := Check(file)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	o, err := c.Splits[0].Options()
	if err != nil {
		t.Fatal(err)
	}
	if len(o.Via) != 2 || len(o.Beside) != 1 || o.Beside[0].Name != "office" {
		t.Errorf("via %v, beside %v", o.Via, o.Beside)
	}
	if len(o.Rules) != 2 || !o.Rules[0].When.Handshake || o.Rules[1].When.Packets != 10 || o.Rules[1].Use != "office" {
		t.Errorf("rules %+v", o.Rules)
	}
	if token, err := o.Secret("office"); string(token) != "token" {
		t.Errorf("the secret beside the file: %d bytes, %v", len(token), err)
	}
}

func TestRulesThatCannotWork(t *testing.T) {
	const head = "via = [\"home=src:127.0.0.2\", \"lte=src:127.0.0.3\"]\n"
	const tail = "\n[[split]]\nlisten = \"127.0.0.1:0\"\nname = \"a\"\nto = \"192.0.2.1:443\"\n"
	for _, c := range []struct{ text, key, what string }{
		{head + "handshake-via = \"office\"" + tail, "handshake-via", "no path is called"},
		{head + "settle = \"-1s\"" + tail, "settle", "less than 0"},
		{head + "[[up]]\nfile = \"x.conf\"\nhandshake-via = \"home\"\n", "up[0].handshake-via", "no QUIC handshake"},
		{head + "secret = [\"home\"]" + tail, "secret[0]", "is not NAME=FILE"},
		{head + "secret = [\"x=y\"]" + tail, "secret[0]", "no path is called"},
		{head + "path = [\"home=src:127.0.0.9\"]" + tail, "via[0]", "two paths are called home"},
		{head + tail + "[[rule]]\nwhen = \"first\"\nuse = \"home\"\n", "rule[0]", "it is no condition"},
		{head + tail + "[[rule]]\nwhen = \"port 53\"\nuse = \"office\"\n", "rule[0]", "no path is called"},
		{head + tail + "[[rule]]\nwhen = \"port 53\"\nuses = \"home\"\n", "rule[0].uses", "no key is called"},
	} {
		file := filepath.Join(t.TempDir(), "heddle.toml")
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, problems := Check(file)
		found := false
		for _, p := range problems.Errors() {
			found = found || p.Key == c.key && strings.Contains(p.What, c.what) && p.Line > 0 && p.Hint != ""
		}
		if !found {
			t.Errorf("%s: no %q at %s in %v", c.text, c.what, c.key, problems)
		}
	}
}

func TestSecretsThatOthersCanRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	for _, c := range []struct {
		mode os.FileMode
		text string
		want string // "" where it is read
	}{
		{0o600, "alice:wonder\nland", ""},
		{0o644, "alice:wonder", "others can read"},
		{0o600, "\n", "is empty"},
		{0o600, strings.Repeat("x", maxSecret+1), "no file with a secret"},
	} {
		if err := os.WriteFile(file, []byte(c.text), c.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, c.mode); err != nil {
			t.Fatal(err)
		}
		s, err := readSecret("p", file)
		if c.want == "" && (err != nil || string(s) != "alice:wonder") {
			t.Errorf("%#o: %v, %d bytes", c.mode, err, len(s))
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "wonder")) {
			t.Errorf("%#o: %v, want %q", c.mode, err, c.want)
		}
	}
}

// A path reads its secret when it opens, so a file that cannot be used is refused before that.
func TestSecretsAreCheckedAtTheStart(t *testing.T) {
	dir := t.TempDir()
	readable := filepath.Join(dir, "readable")
	if err := os.WriteFile(readable, []byte("token"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(readable, 0o644); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{readable: "others can read", filepath.Join(dir, "absent"): "cannot be read"} {
		p := DefaultPaths()
		p.Via, p.Secret = []string{"a=src:127.0.0.1", "b=src:127.0.0.2"}, []string{"a=" + file}
		if _, err := p.Options(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("datagrams: %v, want %q", err, want)
		}
		s := DefaultStreamDial().Stripe
		s.Via, s.Secret = p.Via, p.Secret
		if err := s.problems()["secret[0]"]; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("streams: %v, want %q", err, want)
		}
	}
}
