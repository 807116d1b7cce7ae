package metrics

import (
	"io"
	goruntime "runtime/metrics"

	vm "github.com/VictoriaMetrics/metrics"
)

// settings of Go that VictoriaMetrics has by other names or not at all. These names are those of Prometheus's own library.
var settings = []goruntime.Sample{{Name: "/gc/gogc:percent"}, {Name: "/gc/gomemlimit:bytes"}, {Name: "/sched/gomaxprocs:threads"}}

var settingNames = []string{"go_gc_gogc_percent", "go_gc_gomemlimit_bytes", "go_sched_gomaxprocs_threads"}

// writeProcess writes the numbers of the process.
func writeProcess(w io.Writer) {
	vm.ExposeMetadata(true)
	vm.WriteProcessMetrics(w)
	vm.WriteFDMetrics(w)
	now := append([]goruntime.Sample(nil), settings...)
	goruntime.Read(now)
	for i, s := range now {
		vm.WriteGaugeUint64(w, settingNames[i], s.Value.Uint64())
	}
	writeSystem(w)
}
