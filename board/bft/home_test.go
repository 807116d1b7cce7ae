package bft

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"heddle/board/space"
)

func testPlan(t *testing.T) Plan {
	return Plan{Dir: t.TempDir(), Hosts: []string{"127.0.0.1", "board.example", "127.0.0.1", "::1"}, Port: 7000, PeerPort: 8000, Limits: space.DefaultLimits()}
}

func TestHomes(t *testing.T) {
	plan := testPlan(t)
	made, err := Create(plan)
	if err != nil {
		t.Fatal(err)
	}
	if made.Faults != 1 || len(made.Replicas) != 4 {
		t.Fatalf("%+v", made)
	}
	for i, want := range []struct{ client, listen, peers string }{
		{"127.0.0.1:7000", "127.0.0.1:7000", "127.0.0.1:8000"},
		{"board.example:7000", ":7000", ":8000"},
		{"127.0.0.1:7001", "127.0.0.1:7001", "127.0.0.1:8001"},
		{"[::1]:7000", "[::1]:7000", "[::1]:8000"},
	} {
		h, err := openHome(filepath.Join(plan.Dir, string(rune('0'+i))))
		if err != nil {
			t.Fatal(err)
		}
		if got := made.Replicas[i]; got.Address != want.client || got.Key != h.identity.Key() || h.settings.Listen != want.listen || h.settings.ListenPeers != want.peers || h.genesis.Name != made.Space {
			t.Errorf("replica %d: %+v, %+v", i, got, h.settings)
		}
	}
	if _, err := Create(plan); err == nil || !strings.Contains(err.Error(), "there already") {
		t.Errorf("a second time: %v", err)
	}
}

func TestSecretsAreTheOwnersAlone(t *testing.T) {
	plan := testPlan(t)
	if _, err := Create(plan); err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(plan.Dir, "0")
	for _, name := range []string{"", fileIdentity, fileNode, fileValidator, fileVotes} {
		if info, err := os.Stat(filepath.Join(home, name)); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

func TestBadHomes(t *testing.T) {
	for name, spoil := range map[string]func(plan Plan) error{
		"nothing":      func(p Plan) error { return os.RemoveAll(filepath.Join(p.Dir, "0")) },
		"no settings":  func(p Plan) error { return os.WriteFile(filepath.Join(p.Dir, "0", fileReplica), []byte("{"), 0o600) },
		"no genesis":   func(p Plan) error { return os.Remove(filepath.Join(p.Dir, "0", fileGenesis)) },
		"no votes":     func(p Plan) error { return os.Remove(filepath.Join(p.Dir, "0", fileVotes)) },
		"no validator": func(p Plan) error { return os.WriteFile(filepath.Join(p.Dir, "0", fileValidator), nil, 0o600) },
		"a wrong key": func(p Plan) error {
			return os.Rename(filepath.Join(p.Dir, "1", fileNode), filepath.Join(p.Dir, "0", fileNode))
		},
		"another index": func(p Plan) error {
			return os.Rename(filepath.Join(p.Dir, "1", fileReplica), filepath.Join(p.Dir, "0", fileReplica))
		},
		"readable key": func(p Plan) error { return os.Chmod(filepath.Join(p.Dir, "0", fileIdentity), 0o644) },
		"no member": func(p Plan) error {
			return os.WriteFile(filepath.Join(p.Dir, "0", fileReplica), []byte(`{"replica": 7}`), 0o600)
		},
	} {
		plan := testPlan(t)
		if _, err := Create(plan); err != nil {
			t.Fatal(err)
		}
		if err := spoil(plan); err != nil {
			t.Fatal(err)
		}
		if _, err := openHome(filepath.Join(plan.Dir, "0")); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestNumberOfReplicas(t *testing.T) {
	for n, want := range map[int]int{0: -1, 1: -1, 3: -1, 4: 1, 5: -1, 7: 2, 10: 3, 103: -1} {
		f, err := faults(n)
		if err != nil {
			f = -1
		}
		if f != want {
			t.Errorf("%d replicas: %d, %v", n, f, err)
		}
	}
}

// CometBFT complains at each start where it cannot write its book of addresses.
func TestBookOfAddressesHasAPlace(t *testing.T) {
	plan := testPlan(t)
	if _, err := Create(plan); err != nil {
		t.Fatal(err)
	}
	h, err := openHome(filepath.Join(plan.Dir, "0"))
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Dir(h.config(false).P2P.AddrBookFile())); err != nil || !info.IsDir() {
		t.Errorf("%v, %v", info, err)
	}
}
