package peer

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"heddle/internal/polltest"
	"heddle/lab"
)

// builtQUIC says which servers can start at once: aioquic and quiche take minutes to get, which no test may.
func builtQUIC(t *testing.T) []string {
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(slices.Clone(QUICServers), func(library string) bool {
		if library == "quic-go" {
			return false
		}
		_, err := os.Stat(filepath.Join(cache, "heddle", "peers", library+"-"+Digest("", sources(library))))
		return err != nil
	})
}

func TestQUICServersCarryBothWays(t *testing.T) {
	in := needWorld(t, lab.ThreeWaysUnlimited())
	for i, library := range builtQUIC(t) {
		q, err := QUICServer(t.Context(), in.Host("server"), library, QUICConfig{
			Addr: netip.AddrPortFrom(lab.ServerAddr, uint16(4433+i)), Names: []string{"server.example"}, Work: t.TempDir()})
		need(t, err)
		tests := []QUICTest{{}, {Up: true}}
		if library != "quiche" {
			tests = append(tests, QUICTest{Version: 2})
		}
		for _, test := range tests {
			var result QUICResult
			polltest.Again(t, func(try int) error { // the handshake may take longer than that, and then nothing goes up
				test.For = 500 * time.Millisecond << try
				result, err = q.Fetch(t.Context(), in.Host("client"), test)
				if err != nil || result.Bytes == 0 || result.BitsPerSecond <= 0 {
					return fmt.Errorf("%s, %+v: %+v, %v\n%s", library, test, result, err, q.Log())
				}
				return nil
			})
			if want := "v" + string('0'+rune(max(test.Version, 1))); result.Version != want {
				t.Errorf("%s: version %s, want %s", library, result.Version, want)
			}
		}
		q.Stop()
	}
}

func TestQUICServerRefusesWhatItCannotBe(t *testing.T) {
	config := QUICConfig{Addr: netip.AddrPortFrom(lab.ServerAddr, 4433), Names: []string{"a"}, Work: t.TempDir()}
	if _, err := QUICServer(t.Context(), nil, "msquic", config); err == nil {
		t.Error("there is no such server")
	}
	config.Names = nil
	if _, err := QUICServer(t.Context(), nil, "quic-go", config); err == nil {
		t.Error("a server without a name")
	}
}

func TestPinCrates(t *testing.T) {
	file := filepath.Join(t.TempDir(), "Cargo.lock")
	made := "[[package]]\nname = \"a\"\nversion = \"2.0.0\"\nsource = \"somewhere\"\nchecksum = \"22\"\n"
	if err := os.WriteFile(file, []byte(made), 0o644); err != nil {
		t.Fatal(err)
	}
	pinned := "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"11\"\n\n[[package]]\nname = \"own\"\nversion = \"0.0.0\"\n"
	if err := pinCrates(file, []byte(pinned)); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = \"somewhere\"\nchecksum = \"11\"\n\n[[package]]\nname = \"own\"\nversion = \"0.0.0\"\n"
	if string(got) != want {
		t.Errorf("got\n%s", got)
	}
}
