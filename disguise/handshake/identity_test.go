package handshake

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"heddle/identity"
)

func TestIdentityFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "bridge.pem")
	first, created, err := LoadOrCreateIdentity(file)
	if err != nil || !created {
		t.Fatalf("created %v: %v", created, err)
	}
	again, created, err := LoadOrCreateIdentity(file)
	if err != nil || created || again.Public() != first.Public() {
		t.Fatalf("the second time: created %v, %v", created, err)
	}
	if runtime.GOOS == "windows" {
		return
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info.Mode(), err)
	}
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadIdentity(file); err == nil || !strings.Contains(err.Error(), "others may read it") {
		t.Errorf("a file that others may read: %v", err)
	}
}

func TestWrongIdentityFiles(t *testing.T) {
	dir := t.TempDir()
	another := filepath.Join(dir, "ed25519.pem")
	if _, _, err := identity.LoadOrCreate(another); err != nil {
		t.Fatal(err)
	}
	ed25519, err := os.ReadFile(another)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"empty":   "",
		"words":   "xyzzy",
		"no key":  "-----BEGIN PRIVATE " + "KEY-----\neHl6enk=\n-----END PRIVATE KEY-----\n",
		"Ed25519": string(ed25519),
		"two":     string(ed25519) + string(ed25519),
	} {
		file := filepath.Join(dir, "bridge.pem")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := LoadOrCreateIdentity(file)
		if err == nil || strings.Contains(err.Error(), "xyzzy") || strings.Contains(err.Error(), "eHl6") {
			t.Errorf("%s: %v", name, err)
		}
		if after, _ := os.ReadFile(file); string(after) != text {
			t.Errorf("%s: the file was replaced", name)
		}
	}
	if _, _, err := LoadOrCreateIdentity(filepath.Join(another, "a")); err == nil {
		t.Error("a file in a file")
	}
}

func TestNothingPrintsTheIdentity(t *testing.T) {
	id, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := json.Marshal(map[string]any{"id": id})
	if err != nil || string(asJSON) != `{"id":"(bridge key)"}` {
		t.Errorf("%s, %v", asJSON, err)
	}
	if text := fmt.Sprintf("%v %+v %#v %x", id, id, &id, id); text != strings.TrimSpace(strings.Repeat("(bridge key) ", 4)) {
		t.Error(text)
	}
}
