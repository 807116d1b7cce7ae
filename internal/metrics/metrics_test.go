package metrics

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

type inner struct {
	Live  int               `json:"live"`
	Bytes uint64            `json:"bytes_up"`
	Of    map[string]uint64 `json:"of" label:"event"`
	Other map[string]uint64 `json:"other"`
}

type flat struct {
	Share float64 `json:"share"`
}

type status struct {
	Name   string    `json:"name"`
	Since  time.Time `json:"since"`
	List   []inner   `json:"list"`
	Store  *inner    `json:"store,omitempty"`
	None   *inner    `json:"none,omitempty"`
	Hidden int       `json:"-"`
	Up     bool      `json:"up"`
	flat
	Flat flat
}

// The names are those of the JSON fields.
func TestNames(t *testing.T) {
	s := status{Name: "x", Since: time.Now(), List: []inner{{Live: 1}}, Up: true, Hidden: 3, Store: &inner{Live: 2, Bytes: 3, Of: map[string]uint64{"a": 4, "b": 5}, Other: map[string]uint64{"a": 1}}}
	want := `
# HELP heddle_Flat_share As in heddle status --json.
# TYPE heddle_Flat_share gauge
heddle_Flat_share 0
# HELP heddle_share As in heddle status --json.
# TYPE heddle_share gauge
heddle_share 0
# HELP heddle_store_bytes_up As in heddle status --json.
# TYPE heddle_store_bytes_up counter
heddle_store_bytes_up 3
# HELP heddle_store_live As in heddle status --json.
# TYPE heddle_store_live gauge
heddle_store_live 2
# HELP heddle_store_of As in heddle status --json.
# TYPE heddle_store_of counter
heddle_store_of{event="a"} 4
heddle_store_of{event="b"} 5
# HELP heddle_up As in heddle status --json.
# TYPE heddle_up gauge
heddle_up 1
`
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(collector{"heddle", func() any { return s }})
	if err := testutil.GatherAndCompare(r, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestServe(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, l, Handler("heddle", func() any { return &status{} })) }()
	r, err := http.Get("http://" + l.Addr().String() + Path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	for _, part := range []string{"heddle_up 0", "go_goroutines", "process_"} {
		if err != nil || !strings.Contains(string(text), part) {
			t.Errorf("lacks %s: %v\n%s", part, err, text)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
