package disguise

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"heddle/internal/polltest"
	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

// pasted starts Debian's tor on a host. Its torrc has what `heddle disguise torrc` printed, and where to keep its files.
func pasted(t *testing.T, host *lab.Host, dir, lines string) *peer.Process {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "torrc")
	if err := os.WriteFile(file, []byte("DataDirectory "+dir+"\nLog notice stdout\n"+lines), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := peer.Start(t.Context(), host, "tor", "-f", file)
	if errors.Is(err, peer.ErrMissing) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return p
}

// transports returns the processes of `heddle disguise pt` that a tor with this directory started.
func transports(t *testing.T, dir string) (pids []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		environ, err := os.ReadFile(file)
		if err == nil && bytes.Contains(environ, []byte("TOR_PT_STATE_LOCATION="+dir+"/")) {
			pids = append(pids, file)
		}
	}
	return pids
}

// What `heddle disguise torrc` prints makes a bridge and a client of it, once the placeholders are filled in. The transport ends when its
// Tor is killed.
func TestTorrcAsItIsPrinted(t *testing.T) {
	t.Parallel()
	in := labtest.Up(t, lab.Pair())
	printed := func(args ...string) (bridge, client string) {
		t.Helper()
		out, err := in.Host("a").Command(t.Context(), labtest.Heddle, append([]string{"disguise", "torrc"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		bridge, client, _ = strings.Cut(string(out), "\n\n")
		return bridge + "\n", client
	}
	dir := t.TempDir()
	lines, _ := printed("--listen", netip.AddrPortFrom(in.Host("a").Addrs()[0], 4443).String())
	bridge := pasted(t, in.Host("a"), filepath.Join(dir, "bridge"), lines)
	line := filepath.Join(dir, "bridge", "pt_state", "heddle_bridgeline.txt")
	if err := bridge.Await(t.Context(), func() error {
		for _, file := range []string{line, filepath.Join(dir, "bridge", "fingerprint")} {
			if _, err := os.Stat(file); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatalf("%v\n%s", err, bridge.Log())
	}
	fingerprint, err := os.ReadFile(filepath.Join(dir, "bridge", "fingerprint"))
	if err != nil {
		t.Fatal(err)
	}
	_, lines = printed("--line", line)
	lines = strings.ReplaceAll(lines, "<FINGERPRINT>", strings.Fields(string(fingerprint))[1])
	client := pasted(t, in.Host("b"), filepath.Join(dir, "client"), "SocksPort 0\n"+lines)
	// This is as far as Tor comes without the public network: it has talked with the bridge through the transport.
	if err := client.AwaitLog(t.Context(), "new bridge descriptor"); err != nil {
		t.Fatalf("%v\n%s\n%s", err, client.Log(), bridge.Log())
	}
	for _, name := range []string{"client", "bridge"} {
		if n := len(transports(t, filepath.Join(dir, name))); n != 1 {
			t.Errorf("%s: %d transports run", name, n)
		}
	}
	client.Kill()
	bridge.Kill()
	polltest.Await(t, "the transports end with their Tor", func() bool { return len(transports(t, dir)) == 0 })
}
