package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"heddle/config"
)

// Each key of a file is a flag of the command that does the same, with the same default and help, and each flag is a key.
func TestFlagsAreKeys(t *testing.T) {
	for _, c := range []struct {
		command   string
		settings  any      // before anything is said
		arguments []string // keys that the command line gives without a flag
		flags     []string // of the command line alone
	}{
		{"up", config.DefaultUp(config.DefaultPaths()), []string{"file"}, []string{"background", "dry-run", "rule"}},
		{"split", config.DefaultSplit(config.DefaultPaths()), nil, []string{"rule"}},
		{"stream serve", config.DefaultStreamServe(), nil, []string{"config"}},
		{"stream dial", config.DefaultStreamDial(), []string{"name"}, []string{"config"}},
		{"node run", config.DefaultNode(), nil, []string{"json"}},
	} {
		cmd, _, err := newRootCommand().Find(strings.Fields(c.command))
		if err != nil {
			t.Fatal(err)
		}
		var keys []string
		v := reflect.ValueOf(c.settings)
		for _, field := range reflect.VisibleFields(v.Type()) {
			key := field.Tag.Get("toml")
			if key == "" || key == "-" || slices.Contains(c.arguments, key) {
				continue
			}
			keys = append(keys, key)
			f := cmd.Flags().Lookup(key)
			if f == nil {
				t.Errorf("%s: the key %s has no flag", c.command, key)
				continue
			}
			if want := written(v.FieldByIndex(field.Index).Interface()); f.DefValue != want {
				t.Errorf("%s --%s: the default is %q, and the key's %q", c.command, key, f.DefValue, want)
			}
			help, _, _ := strings.Cut(field.Tag.Get("help"), "{")
			if help = strings.NewReplacer("<", "`", ">", "`").Replace(help); help == "" || !strings.HasPrefix(f.Usage, help) {
				t.Errorf("%s --%s: its help is %q, and the key's %q", c.command, key, f.Usage, help)
			}
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" && !slices.Contains(keys, f.Name) && !slices.Contains(c.flags, f.Name) {
				t.Errorf("%s --%s is no key", c.command, f.Name)
			}
		})
	}
}

// The old name of a flag means it still, and stands in no help.
func TestOldFlags(t *testing.T) {
	for _, command := range []string{"split", "stream dial", "stream serve", "send", "recv"} {
		cmd, _, err := newRootCommand().Find(strings.Fields(command))
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.ParseFlags([]string{"--plane", "mptcp"}); err != nil {
			t.Errorf("%s: %v", command, err)
		}
		if got := cmd.Flags().Lookup("backend"); !got.Changed || !strings.Contains(got.Value.String(), "mptcp") {
			t.Errorf("%s: --backend is %v", command, got.Value)
		}
		if strings.Contains(cmd.UsageString(), "plane") {
			t.Errorf("%s --help has the old name", command)
		}
	}
}

// written gives a default as pflag writes it.
func written(value any) string {
	switch v := value.(type) {
	case []string:
		return "[" + strings.Join(v, ",") + "]"
	case time.Duration:
		return v.String()
	case *uint64:
		return ""
	}
	return fmt.Sprint(value)
}
