package disguise

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

func TestMain(m *testing.M) { labtest.Main(m) }

// Debian's Tor with the transport at both ends reaches the network, and what it fetches is right.
func TestTorOverTheTransport(t *testing.T) {
	in := labtest.Up(t, lab.Tor("tor", lab.DSL(0)))
	err := peer.TorWorld(t.Context(), in, labtest.Heddle)
	if errors.Is(err, peer.ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join(in.Host("web").Dir(), "site", "large.bin"))
	if err != nil {
		t.Fatal(err)
	}
	before, err := in.Link("access").Status()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "large.bin")
	if _, err := peer.Curl(t.Context(), in.Host("client"), "http://web.example/large.bin", file, peer.BySOCKS(peer.HeddleSOCKS)...); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes of %d, %v", len(got), len(want), err)
	}
	after, err := in.Link("access").Status()
	if err != nil {
		t.Fatal(err)
	}
	if down := after.BtoA.DeliveredBytes - before.BtoA.DeliveredBytes; down < uint64(len(want)) {
		t.Errorf("only %d bytes crossed the link", down)
	}
}
