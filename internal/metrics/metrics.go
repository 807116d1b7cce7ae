// Package metrics shows the status of a program to Prometheus. The metric of a number has the names of its JSON fields, joined by "_", so
// a status has one set of names.
package metrics

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"heddle/internal/netutil"
)

// Path is where metrics are.
const Path = "/metrics"

// LabelTag is the tag of a field that is a map of numbers: the name of the label that its keys are values of.
const LabelTag = "label"

// textFormat is Prometheus's, which all of its versions read.
const textFormat = "text/plain; version=0.0.4; charset=utf-8"

// Handler serves the numbers of a status, and those of the process. Fields of unsigned integers are counters, and others gauges; lists,
// texts and times are left out.
func Handler(prefix string, status func() any) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Path, func(w http.ResponseWriter, _ *http.Request) {
		var b bytes.Buffer
		write(&b, prefix, status())
		writeProcess(&b)
		w.Header().Set("Content-Type", textFormat)
		_, _ = w.Write(b.Bytes()) // the client is gone if it fails
	})
	return mux
}

// sample is a number of a status.
type sample struct {
	name, kind string
	label      string // with its value, in braces; or empty
	value      float64
}

// write writes the numbers of a status in Prometheus's text format.
func write(b *bytes.Buffer, prefix string, status any) {
	var all []sample
	walk(&all, prefix, reflect.ValueOf(status), "")
	slices.SortFunc(all, func(x, y sample) int { return cmp.Or(cmp.Compare(x.name, y.name), cmp.Compare(x.label, y.label)) })
	for i, s := range all {
		if i == 0 || s.name != all[i-1].name {
			fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s %s\n", s.name, help, s.name, s.kind)
		}
		fmt.Fprintf(b, "%s%s %s\n", s.name, s.label, strconv.FormatFloat(s.value, 'g', -1, 64))
	}
}

// help is the same for all: the documentation of the status has more.
const help = "As in heddle status --json."

func walk(out *[]sample, name string, v reflect.Value, label string) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			walk(out, name, v.Elem(), label)
		}
	case reflect.Struct:
		walkFields(out, name, v)
	case reflect.Map:
		for keys := v.MapRange(); label != "" && keys.Next(); {
			send(out, name, keys.Value(), "{"+label+"=\""+escapes.Replace(keys.Key().String())+"\"}")
		}
	default:
		send(out, name, v, "")
	}
}

// escapes are those of a label's value.
var escapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

func walkFields(out *[]sample, name string, v reflect.Value) {
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

// send adds a number, with its label if it has one.
func send(out *[]sample, name string, v reflect.Value, label string) {
	kind, n := "gauge", 0.0
	switch {
	case v.CanUint():
		kind, n = "counter", float64(v.Uint())
	case v.CanInt():
		n = float64(v.Int())
	case v.CanFloat():
		n = v.Float()
	case v.Kind() == reflect.Bool && v.Bool():
		n = 1
	case v.Kind() != reflect.Bool:
		return
	}
	*out = append(*out, sample{name, kind, label, n})
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
