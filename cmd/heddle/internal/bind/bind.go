// Package bind gives commands their shared flags, and completes their values.
package bind

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"heddle/config"
	"heddle/disguise/cover"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// FlagsOver gives flags priority over a file: load replaces all values, and then the given flags are set again.
func FlagsOver(cmd *cobra.Command, load func() error) error {
	var again []func() error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if list, ok := f.Value.(pflag.SliceValue); ok {
			given := slices.Clone(list.GetSlice())
			again = append(again, func() error { return list.Replace(given) })
			return
		}
		given := f.Value.String()
		again = append(again, func() error { return f.Value.Set(given) })
	})
	if err := load(); err != nil {
		return err
	}
	for _, set := range again {
		if err := set(); err != nil {
			return err
		}
	}
	return nil
}

// Flags adds a flag for each field of settings that has a help tag, embedded structs included. If only is given, it
// adds those names alone. The field's value is the default. Tags define the rest:
//
//	toml      the flag's name, and the key's in a file; flag overrides it
//	help      the help text; <NAME> names the value, and {choices} lists the words of [config.Choices]
//	complete  what the shell offers: a list of [config.Choices], words, path, file or dir
//	list      commas, if one flag may hold several values
//	old       the flag's old name, which still works
//	short     its letter
//
// It returns cmd.
func Flags(cmd *cobra.Command, settings any, only ...string) *cobra.Command {
	return declare(cmd, cmd.Flags(), settings, only)
}

// Persistent is [Flags] for flags that the commands below cmd have too.
func Persistent(cmd *cobra.Command, settings any) *cobra.Command {
	return declare(cmd, cmd.PersistentFlags(), settings, nil)
}

// Printing is the flag of most commands that print an answer.
type Printing struct {
	JSON bool `flag:"json" help:"print JSON"`
}

func declare(cmd *cobra.Command, flags *pflag.FlagSet, settings any, only []string) *cobra.Command {
	v := reflect.ValueOf(settings).Elem()
	for _, field := range reflect.VisibleFields(v.Type()) {
		name := cmp.Or(field.Tag.Get("flag"), field.Tag.Get("toml"))
		help, helped := field.Tag.Lookup("help")
		if !helped || len(only) > 0 && !slices.Contains(only, name) {
			continue
		}
		add(flags, v.FieldByIndex(field.Index).Addr().Interface(), name, helpOf(help), field.Tag)
		complete(cmd, flags, name, field.Tag.Get("complete"))
		if old := field.Tag.Get("old"); old != "" {
			rename(flags, old, name)
		}
	}
	return cmd
}

// braced matches a list of choices in a help text.
var braced = regexp.MustCompile(`\{([a-z-]+)\}`)

// helpOf marks the name of the flag's value for pflag, and lists the choices.
func helpOf(tag string) string {
	tag = braced.ReplaceAllStringFunc(tag, func(name string) string {
		return strings.Join(config.Choices(name[1:len(name)-1]), ", ")
	})
	return strings.NewReplacer("<", "`", ">", "`").Replace(tag)
}

func add(flags *pflag.FlagSet, target any, name, help string, tag reflect.StructTag) {
	short := tag.Get("short")
	switch t := target.(type) {
	case *string:
		flags.StringVarP(t, name, short, *t, help)
	case *bool:
		flags.BoolVarP(t, name, short, *t, help)
	case *int:
		flags.IntVarP(t, name, short, *t, help)
	case *int64:
		flags.Int64VarP(t, name, short, *t, help)
	case *uint64:
		flags.Uint64VarP(t, name, short, *t, help)
	case *float64:
		flags.Float64VarP(t, name, short, *t, help)
	case *time.Duration:
		flags.DurationVarP(t, name, short, *t, help)
	case **uint64:
		flags.VarP(seedValue{t}, name, short, help)
	case *[]int:
		flags.IntSliceVarP(t, name, short, *t, help)
	case *[]string:
		if tag.Get("list") == "commas" {
			flags.StringSliceVarP(t, name, short, *t, help)
		} else {
			flags.StringArrayVarP(t, name, short, *t, help)
		}
	case *cover.Specs:
		flags.StringArrayVarP((*[]string)(t), name, short, *t, help)
	case pflag.Value:
		flags.VarP(t, name, short, help)
	default:
		panic(fmt.Sprintf("--%s: no flag holds a %T", name, target))
	}
}

// rename makes an old name an alias of a flag, hidden from help.
func rename(flags *pflag.FlagSet, old, name string) {
	others := flags.GetNormalizeFunc()
	flags.SetNormalizeFunc(func(f *pflag.FlagSet, given string) pflag.NormalizedName {
		if given == old {
			given = name
		}
		return others(f, given)
	})
}

func complete(cmd *cobra.Command, flags *pflag.FlagSet, name, what string) {
	words := config.Choices(what)
	switch {
	case what == "":
		return
	case what == "path":
		_ = cmd.RegisterFlagCompletionFunc(name, CompleteVia)
		return
	case what == "file":
		_ = cobra.MarkFlagFilename(flags, name)
		return
	case what == "dir":
		_ = flags.SetAnnotation(name, cobra.BashCompSubdirsInDir, []string{})
		return
	case words == nil:
		words = strings.Fields(what)
	}
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// Config adds the flag for a heddle.toml.
func Config(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "config", "", "a heddle.toml, `FILE`, whose table says what flags leave open")
	_ = cmd.MarkFlagFilename("config", "toml")
}

// seedValue is a flag that records whether it was given.
type seedValue struct{ seed **uint64 }

func (v seedValue) Type() string { return "number" }

func (v seedValue) String() string {
	if v.seed == nil || *v.seed == nil {
		return ""
	}
	return strconv.FormatUint(**v.seed, 10)
}

func (v seedValue) Set(text string) error {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return errors.New("it is not a whole number from 0")
	}
	*v.seed = &n
	return nil
}
