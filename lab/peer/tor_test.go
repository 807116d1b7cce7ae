package peer

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"heddle/lab"
)

func TestTorFetchesByEachWay(t *testing.T) {
	in := needWorld(t, lab.Tor("tor", lab.DSL(0)))
	need(t, TorWorld(t.Context(), in, ""))
	want, err := os.ReadFile(filepath.Join(in.Host("web").Dir(), "site", "large.bin"))
	if err != nil || len(want) != 1_000_000 {
		t.Fatal(len(want), err)
	}
	for name, port := range map[string]uint16{"guards": TorSOCKS, "bridge": BridgeSOCKS, "obfs4": Obfs4SOCKS} {
		t.Run(name, func(t *testing.T) {
			if _, err := Obfs4(obfs4Port); port == Obfs4SOCKS {
				need(t, err)
			}
			file := filepath.Join(t.TempDir(), "large.bin")
			fetched, err := Curl(t.Context(), in.Host("client"), "http://web.example/large.bin", file, BySOCKS(port)...)
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(file)
			if err != nil || !bytes.Equal(got, want) || fetched.Bytes != int64(len(want)) || fetched.FirstByte > fetched.Total {
				t.Errorf("%d bytes, %+v, %v", len(got), fetched, err)
			}
		})
	}
}
