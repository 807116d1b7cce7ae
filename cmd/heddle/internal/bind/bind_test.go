package bind

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func TestFlags(t *testing.T) {
	f := struct {
		Printing
		Sizes []int         `flag:"sizes" help:"<NUMBERS> of bytes"`
		Seed  uint64        `flag:"seed" help:"makes it repeatable"`
		Wait  time.Duration `flag:"wait" short:"w" help:"how long"`
		Out   string        `flag:"out" help:"the <DIR>" complete:"dir"`
		In    string        `flag:"in" help:"the <FILE>" complete:"file"`
		Kind  string        `flag:"kind" help:"what" complete:"fish fowl"`
		inner string
	}{Sizes: []int{8, 16}, Seed: 7, Wait: time.Second, inner: "no flag"}
	cmd := Flags(&cobra.Command{Use: "test", Run: func(*cobra.Command, []string) {}}, &f)
	for name, want := range map[string][2]string{
		"json": {"false", "print JSON"}, "sizes": {"[8,16]", "`NUMBERS` of bytes"}, "seed": {"7", "makes it repeatable"},
		"wait": {"1s", "how long"}, "out": {"", "the `DIR`"}, "in": {"", "the `FILE`"}, "kind": {"", "what"},
	} {
		if flag := cmd.Flags().Lookup(name); flag == nil || flag.DefValue != want[0] || flag.Usage != want[1] {
			t.Errorf("--%s is %+v, want %q", name, flag, want)
		}
	}
	if err := cmd.ParseFlags([]string{"--sizes", "1,2", "--sizes=3", "--seed", "18446744073709551615", "-w", "2s", "--json"}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(f.Sizes, []int{1, 2, 3}) || f.Seed != 1<<64-1 || f.Wait != 2*time.Second || !f.JSON {
		t.Errorf("the flags gave %+v", f)
	}
	if got := annotations(cmd.Flags()); got != "in:cobra_annotation_bash_completion_filename_extensions out:cobra_annotation_bash_completion_subdirs_in_dir " {
		t.Errorf("files and directories: %s", got)
	}
	offer, there := cmd.GetFlagCompletionFunc("kind")
	if !there {
		t.Fatal("--kind offers nothing")
	}
	if words, _ := offer(cmd, nil, ""); !slices.Equal(words, []string{"fish", "fowl"}) {
		t.Errorf("--kind offers %q", words)
	}
}

func annotations(flags *pflag.FlagSet) (all string) {
	flags.VisitAll(func(f *pflag.Flag) {
		for key := range f.Annotations {
			all += fmt.Sprintf("%s:%s ", f.Name, key)
		}
	})
	return all
}

func TestPersistent(t *testing.T) {
	var f struct {
		Auth string `flag:"auth" help:"the <FILE> of users" complete:"file"`
	}
	top := Persistent(&cobra.Command{Use: "top"}, &f)
	below := &cobra.Command{Use: "below", Run: func(*cobra.Command, []string) {}}
	top.AddCommand(below)
	top.SetArgs([]string{"below", "--auth", "users"})
	if err := top.Execute(); err != nil || f.Auth != "users" {
		t.Errorf("--auth is %q: %v", f.Auth, err)
	}
	if got := annotations(top.PersistentFlags()); got == "" {
		t.Error("--auth does not offer files")
	}
}
