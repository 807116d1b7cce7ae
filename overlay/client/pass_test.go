package client

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"heddle/identity"
)

func passFor(t testing.TB, name string, node identity.Key) Pass {
	return Pass{Name: name, Key: node, Addresses: []string{"192.0.2.9:7443"}, Grant: issue(t, fresh(t), Grant{Holder: fresh(t).Key(), Nodes: []identity.Key{node}})}
}

func TestPassIsKept(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HEDDLE_HOME", home)
	dir, err := Dir()
	if err != nil || dir != filepath.Join(home, "nodes") {
		t.Fatal(dir, err)
	}
	p := passFor(t, "tokyo", fresh(t).Key())
	file, err := p.Save(dir)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	for _, arg := range []string{"tokyo", file} {
		if back, err := LoadPass(arg); err != nil || back.Key != p.Key || back.Grant.String() != p.Grant.String() {
			t.Errorf("%s: %+v, %v", arg, back, err)
		}
	}
	again := p
	again.Addresses = []string{"192.0.2.10:7443"}
	if _, err := again.Save(dir); err != nil {
		t.Errorf("a new pass for the same node: %v", err)
	}
	if _, err := passFor(t, "tokyo", fresh(t).Key()).Save(dir); err == nil {
		t.Error("another node took the name")
	}
	if err := os.Rename(file, filepath.Join(dir, "paris.json")); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadPass("paris"); err == nil || !strings.Contains(err.Error(), "is the pass for tokyo") {
		t.Errorf("a pass under another's name: %v", err)
	}
	if _, err := LoadPass("tokyo"); err == nil || !strings.Contains(err.Error(), "no pass of that name") {
		t.Errorf("no pass: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "bad.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if list, err := Passes(dir); len(list) != 1 || err == nil {
		t.Errorf("%v, %v", list, err)
	}
}

func TestBadPasses(t *testing.T) {
	node := fresh(t).Key()
	for name, change := range map[string]func(*Pass){
		"no name":          func(p *Pass) { p.Name = "" },
		"a path for name":  func(p *Pass) { p.Name = "../x" },
		"a file for name":  func(p *Pass) { p.Name = "x.json" },
		"no key":           func(p *Pass) { p.Key = identity.Key{} },
		"no address":       func(p *Pass) { p.Addresses = nil },
		"no port":          func(p *Pass) { p.Addresses = []string{"192.0.2.9"} },
		"port 0":           func(p *Pass) { p.Addresses = []string{"192.0.2.9:0"} },
		"no host":          func(p *Pass) { p.Addresses = []string{":7443"} },
		"many addresses":   func(p *Pass) { p.Addresses = strings.Fields(strings.Repeat("192.0.2.9:7443 ", 9)) },
		"for another node": func(p *Pass) { p.Key = fresh(t).Key() },
	} {
		p := passFor(t, "tokyo", node)
		change(&p)
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParsePass(text); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func FuzzParsePass(f *testing.F) {
	text, err := json.Marshal(passFor(f, "tokyo", fresh(f).Key()))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"name":"a","key":"ed25519:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE","addresses":["[2001:db8::1]:1"],"grant":""}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := ParsePass(text)
		if err != nil {
			return
		}
		again, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParsePass(again); err != nil {
			t.Errorf("%s was read, and %s is not: %v", text, again, err)
		}
	})
}
