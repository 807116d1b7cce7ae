package handshake

import (
	"encoding/json"
	"testing"

	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

// survival is what a report of `heddle probe quic` says of one kind of change.
type survival struct{ Survived bool }

// Probes of one server all say the same, over links that lose packets.
func TestProbeSaysTheSameEachTime(t *testing.T) {
	const probes = 4
	for _, library := range []string{"quic-go", "aioquic"} {
		t.Run(library, func(t *testing.T) {
			t.Parallel()
			in := labtest.Up(t, lab.ThreeWays())
			args := []string{"probe", "quic", server.String(), "--json", "--sni", serverName, "--insecure", "--for", "5m"}
			for _, way := range lab.Ways {
				if err := in.Link(way).Reshape(func(s *lab.Shape) { s.Loss = 0.03 }); err != nil {
					t.Fatal(err)
				}
				args = append(args, "--via", way+"=if:"+way)
			}
			q, err := peer.QUICServer(t.Context(), in.Host("server"), library, peer.QUICConfig{Addr: server, Names: []string{serverName}, Work: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(q.Stop)
			for n := range probes {
				out, err := in.Host("client").Command(t.Context(), labtest.Heddle, args...).Output()
				if err != nil {
					t.Fatalf("probe %d: %v", n, err)
				}
				var r struct {
					NewPort    survival `json:"new_port"`
					NewAddress survival `json:"new_address"`
					Early      survival `json:"early"`
					Advice     struct{ Split bool }
				}
				if err := json.Unmarshal(out, &r); err != nil {
					t.Fatalf("probe %d printed %s: %v", n, out, err)
				}
				if !r.NewPort.Survived || !r.NewAddress.Survived || !r.Early.Survived || !r.Advice.Split {
					t.Errorf("probe %d: %s", n, out)
				}
			}
		})
	}
}
