package metrics

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
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
	s := status{Name: "x", Since: time.Now(), List: []inner{{Live: 1}}, Up: true, Hidden: 3, Store: &inner{Live: 2, Bytes: 3, Of: map[string]uint64{"a": 4, "b\"\\\n": 5}, Other: map[string]uint64{"a": 1}}}
	want := `# HELP heddle_Flat_share As in heddle status --json.
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
heddle_store_of{event="b\"\\\n"} 5
# HELP heddle_up As in heddle status --json.
# TYPE heddle_up gauge
heddle_up 1
`
	var got bytes.Buffer
	write(&got, "heddle", s)
	if got.String() != want {
		t.Errorf("%s\nwant:\n%s", got.String(), want)
	}
}

// What Prometheus's own library shows of a process: dashboards for programs in Go expect these names.
var (
	ofGo = []string{
		"go_gc_duration_seconds", "go_gc_gogc_percent", "go_gc_gomemlimit_bytes", "go_goroutines", "go_info", "go_memstats_alloc_bytes",
		"go_memstats_alloc_bytes_total", "go_memstats_buck_hash_sys_bytes", "go_memstats_frees_total", "go_memstats_gc_sys_bytes",
		"go_memstats_heap_alloc_bytes", "go_memstats_heap_idle_bytes", "go_memstats_heap_inuse_bytes", "go_memstats_heap_objects",
		"go_memstats_heap_released_bytes", "go_memstats_heap_sys_bytes", "go_memstats_last_gc_time_seconds",
		"go_memstats_mallocs_total", "go_memstats_mcache_inuse_bytes", "go_memstats_mcache_sys_bytes", "go_memstats_mspan_inuse_bytes",
		"go_memstats_mspan_sys_bytes", "go_memstats_next_gc_bytes", "go_memstats_other_sys_bytes", "go_memstats_stack_inuse_bytes",
		"go_memstats_stack_sys_bytes", "go_memstats_sys_bytes", "go_sched_gomaxprocs_threads", "go_threads",
	}
	ofProcess = []string{
		"process_cpu_seconds_total", "process_max_fds", "process_network_receive_bytes_total", "process_network_transmit_bytes_total",
		"process_open_fds", "process_resident_memory_bytes", "process_start_time_seconds", "process_virtual_memory_bytes",
		"process_virtual_memory_max_bytes",
	}
)

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
	if err != nil {
		t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	all, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("Prometheus does not read it: %v\n%s", err, text)
	}
	for _, name := range slices.Concat([]string{"heddle_up"}, ofGo, ofProcess) {
		if m := all[name]; m == nil || m.Type == nil || *m.Type == dto.MetricType_UNTYPED || len(m.Metric) == 0 {
			t.Errorf("lacks %s: %v", name, m)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
