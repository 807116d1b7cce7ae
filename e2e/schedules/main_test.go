package schedules

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

func TestMain(m *testing.M) { labtest.Main(m) }

// world is threeways without limits.
type world struct {
	*lab.Instance
	t   *testing.T
	dir string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	in := labtest.Up(t, lab.ThreeWaysUnlimited())
	return &world{in, t, t.TempDir()}
}

// start starts heddle in a host, and waits until it says a word.
func (w *world) start(host, word string, args ...string) (*peer.Process, error) {
	p, err := peer.Start(w.t.Context(), w.Host(host), labtest.Heddle, args...)
	if err != nil {
		return nil, err
	}
	w.t.Cleanup(p.Stop)
	return p, p.AwaitLog(w.t.Context(), word)
}

// weights reads from the status of a session how likely each path is.
func (w *world) weights(name string) (map[string]float64, error) {
	out, err := w.Host("client").Command(w.t.Context(), labtest.Heddle, "status", name, "--json").Output()
	if err != nil {
		return nil, fmt.Errorf("heddle status: %w", err)
	}
	var all struct {
		Running []struct {
			Sessions []struct {
				Paths []struct {
					Name   string  `json:"name"`
					Weight float64 `json:"weight"`
				} `json:"paths"`
			} `json:"sessions"`
		} `json:"running"`
	}
	if err := json.Unmarshal(out, &all); err != nil || len(all.Running) != 1 || len(all.Running[0].Sessions) != 1 {
		return nil, fmt.Errorf("heddle status printed %s: %v", out, err)
	}
	weights := map[string]float64{}
	for _, p := range all.Running[0].Sessions[0].Paths {
		weights[p.Name] = p.Weight
	}
	return weights, nil
}

// kill ends the heddle that has a session's name, without giving it a chance.
func (w *world) kill(name string, p *peer.Process) {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.Host("client").RunDir(), name+".lock"))
	if err != nil {
		w.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err == nil {
		err = unix.Kill(pid, unix.SIGKILL)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	<-p.Done()
}
