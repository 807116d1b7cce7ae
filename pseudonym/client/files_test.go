package client

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"heddle/pseudonym"
	"heddle/pseudonym/ca"
	"heddle/pseudonym/store"
)

const zone = pseudonym.Zone("cloud.example")

// A hostile store writes no file elsewhere, and puts nothing into the command that a person copies.
func TestHostileStore(t *testing.T) {
	key, err := ca.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	name := zone.Name(pseudonym.NewLabel())
	good := store.Registration{Name: name, Site: "news.example", URL: "https://" + name + "/?pseudonym=" + pseudonym.NewCapability().String(), Expires: time.Now().Add(time.Hour)}
	dir := filepath.Join(t.TempDir(), "zone")
	s, err := save(dir, zone, good, key)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Load(dir, "news.example"); err != nil || again.Name != name || !again.key.Equal(key) {
		t.Errorf("%+v, %v", again, err)
	}
	if err := s.Remove(); err != nil {
		t.Fatal(err)
	}
	for why, edit := range map[string]func(*store.Registration){
		"a site elsewhere":          func(r *store.Registration) { r.Site = "../../etc" },
		"a site of an odd form":     func(r *store.Registration) { r.Site = "News.Example." },
		"no site":                   func(r *store.Registration) { r.Site = "" },
		"a name elsewhere":          func(r *store.Registration) { r.Name = "www.example.com" },
		"a name of an odd form":     func(r *store.Registration) { r.Name += "." },
		"a command in the URL":      func(r *store.Registration) { r.URL += "'; reboot; '" },
		"a URL elsewhere":           func(r *store.Registration) { r.URL = "https://www.example.com/" },
		"an escape of a terminal":   func(r *store.Registration) { r.URL += "\x1b[2J" },
		"a capability of no length": func(r *store.Registration) { r.URL = "https://" + name + "/?pseudonym=" },
	} {
		r := good
		edit(&r)
		if _, err := save(dir, zone, r, key); err == nil {
			t.Errorf("%s: saved", why)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}
