package handshake

import (
	"encoding/json"
	"errors"
	"testing"

	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

// survival is what a report of `heddle probe quic` says of one kind of change.
type survival struct{ Survived bool }

// Probes of one server all say the same, over links that lose packets. A server that ends is reported, and not recommended.
func TestProbeSaysTheSameEachTime(t *testing.T) {
	const probes = 4
	for _, library := range []string{"quic-go", "aioquic", "ngtcp2"} {
		t.Run(library, func(t *testing.T) {
			t.Parallel()
			in := labtest.Up(t, labtest.WithBystander(lab.ThreeWays()))
			quiet := labtest.Unchosen(t, in, "client/"+labtest.Bystander)
			args := []string{"probe", "quic", server.String(), "--json", "--sni", serverName, "--insecure", "--for", "5m"}
			for _, way := range lab.Ways {
				if err := in.Link(way).Reshape(func(s *lab.Shape) { s.Loss = 0.03 }); err != nil {
					t.Fatal(err)
				}
				args = append(args, "--via", way+"=if:"+way)
			}
			config := peer.QUICConfig{Addr: server, Names: []string{serverName}, Work: t.TempDir()}
			for n := range probes {
				q, err := peer.QUICServer(t.Context(), in.Host("server"), library, config)
				if errors.Is(err, peer.ErrMissing) {
					t.Skip("typed skip:", err)
				} else if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(q.Stop)
				out, failed := in.Host("client").Command(t.Context(), labtest.Heddle, args...).Output()
				ended := false
				select {
				case <-q.Done():
					ended = true
				default:
					q.Stop()
				}
				var r struct {
					NewPort    survival `json:"new_port"`
					NewAddress survival `json:"new_address"`
					Early      survival `json:"early"`
					Vanished   string
					Advice     struct{ Split bool }
				}
				if err := json.Unmarshal(out, &r); err != nil {
					t.Fatalf("probe %d printed %s: %v, %v", n, out, failed, err)
				}
				follows := failed == nil && r.NewPort.Survived && r.NewAddress.Survived && r.Early.Survived && r.Advice.Split
				if ended && (failed == nil || r.Vanished == "" || r.Advice.Split) || !ended && !follows {
					t.Errorf("probe %d, %v, the server ended: %t: %s", n, failed, ended, out)
				}
			}
			quiet()
		})
	}
}
