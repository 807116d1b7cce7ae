package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/clitest"
	"heddle/cmd/heddle/man"
	"heddle/cmd/heddle/version"
	"heddle/internal/manual"
)

// walk visits every command, hidden ones too.
func walk(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, c := range cmd.Commands() {
		walk(c, visit)
	}
}

func TestEveryCommandExplainsItself(t *testing.T) {
	walk(newRootCommand(), func(cmd *cobra.Command) {
		name := cmd.CommandPath()
		if cmd.Short == "" || !cmd.Hidden && (cmd.Long == "" || cmd.Example == "") {
			t.Errorf("%s lacks Short, Long or Example", name)
		}
		for line := range strings.Lines(cmd.Long) {
			if n := utf8.RuneCountInString(line); n > 81 {
				t.Errorf("%s: a line of Long has %d columns: %s", name, n-1, line)
			}
		}
		if strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: Short ends in a full stop", name)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s --%s says nothing", name, f.Name)
			}
			if strings.ToLower(f.Name) != f.Name || strings.Contains(f.Name, "_") {
				t.Errorf("%s --%s: flags are lower case with dashes", name, f.Name)
			}
		})
	})
}

// An example that names a flag or a command that does not exist misleads.
func TestExamplesParse(t *testing.T) {
	walk(newRootCommand(), func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Example) {
			if err := parseCommandLine(line); err != nil {
				t.Errorf("%s: %s: %v", cmd.CommandPath(), line, err)
			}
		}
	})
}

// The shell blocks of the documentation are commands to paste, so each has to parse.
func TestDocumentedCommandsParse(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, "../../README.md", "../../CONTRIBUTING.md", "../../SECURITY.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, block := range shellBlock.FindAllStringSubmatch(string(text), -1) {
			lines = append(lines, strings.Split(strings.ReplaceAll(block[1], "\\\n", " "), "\n")...)
		}
		for _, cell := range tableCommand.FindAllStringSubmatch(string(text), -1) {
			lines = append(lines, cell[1])
		}
		for _, line := range lines {
			if err := parseCommandLine(line); err != nil {
				t.Errorf("%s: %s: %v", filepath.Base(page), strings.TrimSpace(line), err)
			}
		}
	}
}

var (
	shellBlock   = regexp.MustCompile("(?s)```sh\n(.*?)```")
	tableCommand = regexp.MustCompile("(?m)^\\|.*`((?:sudo |bin/)?heddle [^`]* --[^`]*)`") // with flags: others may name a command only
	heddleWords  = regexp.MustCompile(`^(?:sudo |nohup |[A-Z_]+=\S+ )*(?:bin/)?heddle (.*)`)
	shellEnd     = regexp.MustCompile(` (?:#|\||&|&&|[12]?>\S*|<)(?: .*|$)|;.*$`)
)

// parseCommandLine checks that a line of a shell names a command of heddle, with flags and arguments that it takes.
// A line of another program passes. Three dots stand for words that the reader knows.
func parseCommandLine(line string) error {
	match := heddleWords.FindStringSubmatch(strings.TrimSpace(line))
	if match == nil {
		return nil
	}
	words := shellWords(shellEnd.ReplaceAllString(match[1], ""))
	found, rest, err := newRootCommand().Find(words)
	if err != nil {
		return err
	}
	if err := found.ParseFlags(rest); err != nil {
		return err
	}
	if found.Args == nil || slices.Contains(words, "...") {
		return nil
	}
	return found.ValidateArgs(found.Flags().Args())
}

// shellWords splits at spaces outside quotes.
func shellWords(line string) []string {
	words := regexp.MustCompile(`(?:[^\s'"]|'[^']*'|"[^"]*")+`).FindAllString(line, -1)
	for i := range words {
		words[i] = strings.NewReplacer("'", "", `"`, "").Replace(words[i])
	}
	return words
}

func TestReferenceIsCurrent(t *testing.T) {
	const file = "../../docs/reference.md"
	want := manual.Reference(newRootCommand())
	if *clitest.Update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/reference.md is not what the commands say: run `make man`")
	}
}

func TestManPages(t *testing.T) {
	dir := t.TempDir()
	if err := manual.WritePages(newRootCommand(), dir, "Heddle "+version.Release, man.FilesText); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "heddle.1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"EXIT CODES", "The command line or a file is wrong", "HEDDLE_RUN_DIR"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("heddle(1) lacks %q", want)
		}
	}
	walk(newRootCommand(), func(cmd *cobra.Command) {
		if !cmd.IsAvailableCommand() && cmd.HasParent() || cmd.Name() == "help" {
			return
		}
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1"
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	})
}

func TestExitCodes(t *testing.T) {
	t.Setenv("HEDDLE_RUN_DIR", t.TempDir())
	for _, c := range []struct {
		args string
		want int
	}{
		{"version", cli.ExitOK}, {"status", cli.ExitOK}, {"--help", cli.ExitOK}, {"help status", cli.ExitOK}, {"", cli.ExitOK},
		{"status nobody", cli.ExitFailure},
		{"nonsense", cli.ExitUsage}, {"status --nonsense", cli.ExitUsage}, {"status a b", cli.ExitUsage}, {"check", cli.ExitUsage},
		{"check nowhere.toml", cli.ExitUsage}, {"run nowhere.toml", cli.ExitUsage}, {"completion tcsh", cli.ExitUsage}, {"help nonsense", cli.ExitUsage},
		{"split", cli.ExitUsage}, {"up", cli.ExitUsage}, {"man", cli.ExitUsage}, {"board run", cli.ExitUsage}, {"lab asim --graph x --tables --all-pairs", cli.ExitUsage},
		{"node run --grantor rubbish", cli.ExitUsage}, {"lab asim --graph x --place Tokyo=AS1", cli.ExitUsage},
	} {
		var out, talk bytes.Buffer
		if got := cli.Run(t.Context(), newRootCommand(), strings.Fields(c.args), strings.NewReader(""), &out, &talk); got != c.want {
			t.Errorf("heddle %s: exit code %d, want %d\n%s", c.args, got, c.want, &talk)
		}
		if c.want != cli.ExitOK && !strings.Contains(talk.String(), "hint: ") {
			t.Errorf("heddle %s: no hint\n%s", c.args, &talk)
		}
	}
}

func TestCompletion(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"split --via home=", "home=if:"},
		{"split --via home=", "home=ports:"},
		{"split --schedule ", "weighted"},
		{"split --every ", "100ms"},
		{"up --via home=s", "home=src:"},
		{"completion ", "fish"},
	} {
		var out, talk bytes.Buffer
		args := append([]string{"__complete"}, strings.Split(c.args, " ")...)
		if code := cli.Run(t.Context(), newRootCommand(), args, strings.NewReader(""), &out, &talk); code != cli.ExitOK || !strings.Contains(out.String(), c.want) {
			t.Errorf("%s: exit code %d\n%s\nwant %s", c.args, code, &out, c.want)
		}
	}
	for _, i := range bind.Interfaces() {
		var out, talk bytes.Buffer
		cli.Run(t.Context(), newRootCommand(), []string{"__complete", "split", "--via", "home=if:"}, strings.NewReader(""), &out, &talk)
		if !strings.Contains(out.String(), "home=if:"+i.Name+"\n") {
			t.Errorf("%s is not offered\n%s", i.Name, &out)
		}
	}
}
