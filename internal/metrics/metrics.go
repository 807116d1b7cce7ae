// Package metrics shows the status of a program to Prometheus. The metric of a number has the names of its JSON fields, joined by "_", so
// a status has one set of names.
package metrics

import (
	"context"
	"net"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"heddle/internal/netutil"
)

// Path is where metrics are.
const Path = "/metrics"

// LabelTag is the tag of a field that is a map of numbers: the name of the label that its keys are values of.
const LabelTag = "label"

// Handler serves the numbers of a status, and those of the process. Fields of unsigned integers are counters, and others gauges; lists,
// texts and times are left out.
func Handler(prefix string, status func() any) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collector{prefix, status})
	mux := http.NewServeMux()
	mux.Handle("GET "+Path, promhttp.HandlerFor(r, promhttp.HandlerOpts{}))
	return mux
}

// collector implements [prometheus.Collector].
type collector struct {
	prefix string
	status func() any
}

// Describe says nothing: what a status has depends on what runs.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (c collector) Collect(out chan<- prometheus.Metric) {
	walk(out, c.prefix, reflect.ValueOf(c.status()), "")
}

// help is the same for all: the documentation of the status has more.
const help = "As in heddle status --json."

func walk(out chan<- prometheus.Metric, name string, v reflect.Value, label string) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			walk(out, name, v.Elem(), label)
		}
	case reflect.Struct:
		walkFields(out, name, v)
	case reflect.Map:
		for keys := v.MapRange(); label != "" && keys.Next(); {
			send(out, name, keys.Value(), label, keys.Key().String())
		}
	default:
		send(out, name, v)
	}
}

func walkFields(out chan<- prometheus.Metric, name string, v reflect.Value) {
	if v.Type() == reflect.TypeFor[time.Time]() {
		return
	}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if !f.IsExported() && !f.Anonymous {
			continue
		}
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case key == "-":
			continue
		case key == "" && f.Anonymous: // JSON has its fields here
			walk(out, name, v.Field(i), "")
			continue
		case key == "":
			key = f.Name
		}
		walk(out, name+"_"+key, v.Field(i), f.Tag.Get(LabelTag))
	}
}

// send sends a number, with the name and the value of its label if it has one.
func send(out chan<- prometheus.Metric, name string, v reflect.Value, label ...string) {
	kind, n := prometheus.GaugeValue, 0.0
	switch {
	case v.CanUint():
		kind, n = prometheus.CounterValue, float64(v.Uint())
	case v.CanInt():
		n = float64(v.Int())
	case v.CanFloat():
		n = v.Float()
	case v.Kind() == reflect.Bool && v.Bool():
		n = 1
	case v.Kind() != reflect.Bool:
		return
	}
	var names, values []string
	if len(label) == 2 {
		names, values = label[:1], label[1:]
	}
	out <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil), kind, n, values...)
}

// scrapeFor bounds one request.
const scrapeFor = 10 * time.Second

// Serve serves a handler in plain HTTP until ctx ends.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	web := &http.Server{Handler: h, ReadHeaderTimeout: scrapeFor, ReadTimeout: scrapeFor, WriteTimeout: scrapeFor, MaxHeaderBytes: 16 << 10}
	defer context.AfterFunc(ctx, func() { web.Close() })()
	if err := web.Serve(netutil.Patient(l)); ctx.Err() == nil {
		return err
	}
	return nil
}
