package mosh

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"testing"

	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/clitest"
	"heddle/cmd/heddle/internal/runner"
	"heddle/config"
	"heddle/split"
)

// heddle has the commands that these tests need.
var heddle = clitest.Program{Command}

func TestMoshRefuses(t *testing.T) {
	t.Setenv("HEDDLE_RUN_DIR", t.TempDir())
	for _, c := range []struct{ args, want string }{
		{"user@", `host "user@"`},
		{"server.example tmux", `"tmux" comes after the host`},
		{"server.example --ssh-port 70000", "70000 is no port"},
		{"server.example --port 0", "it is no PORT or LOW:HIGH"},
		{"server.example --port 9:1", "it is no PORT or LOW:HIGH"},
		{"server.example --port 60001;id", "it is no PORT or LOW:HIGH"},
		{"server.example --predict often", "mosh-client has no such mode"},
		{"server.example --name ../x", "cannot name a session"},
		{"server.example --ssh-via lte", "no path is called that"},
		{"server.example --every never", "--every"},
	} {
		var out, talk bytes.Buffer
		args := append([]string{"mosh", "--via", "home=if:lo", "--dry-run"}, strings.Fields(c.args)...)
		if code := heddle.Run(t.Context(), args, strings.NewReader(""), &out, &talk); code != cli.ExitUsage || !strings.Contains(talk.String(), c.want) {
			t.Errorf("heddle mosh %s: exit code %d, %s; want %q", c.args, code, &talk, c.want)
		}
	}
}

func TestMoshNeedsATerminal(t *testing.T) {
	var out, talk bytes.Buffer
	code := heddle.Run(t.Context(), []string{"mosh", "server.example", "--via", "home=if:lo"}, strings.NewReader(""), &out, &talk)
	if code != cli.ExitFailure || !strings.Contains(talk.String(), "must be a terminal") {
		t.Errorf("exit code %d, %s", code, &talk)
	}
}

// ssh must go by the path that was asked for, with what that one needs and no more.
func TestMoshProxy(t *testing.T) {
	m := session{Paths: config.DefaultPaths(), SSHVia: "lte", Predict: Predictions[0], server: Server{Host: "server.example"}}
	m.Via = []string{"home=if:home", "lte=src:192.0.2.7"}
	if err := m.check(); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	option := session{Paths: m.Paths, Predict: m.Predict, server: Server{Host: "-oProxyCommand=x"}}
	if err := option.check(); err == nil {
		t.Error("an option of ssh is taken for a host")
	}
	if got, want := strings.Join(m.server.Proxy, " "), self+" connect --announce --via lte=src:192.0.2.7"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	m.Identity = "me.pem"
	if err := m.check(); err != nil || !strings.Contains(strings.Join(m.server.Proxy, " "), "connect --announce --identity me.pem --via") {
		t.Errorf("with an identity: %v, %v", m.server.Proxy, err)
	}
}

func TestMoshSessionNames(t *testing.T) {
	dir, err := os.MkdirTemp("", "") // shorter than that of the test: the names of sockets are
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	t.Setenv("HEDDLE_RUN_DIR", dir)
	for _, c := range []struct{ host, want string }{
		{"user@server.example", "mosh-server.example"}, {"server.example", "mosh-server.example-2"},
		{"2001:db8::1", "mosh-2001-db8-1"}, {strings.Repeat("long", 30), "mosh-" + strings.Repeat("long", 30)[:55]},
	} {
		m := session{server: Server{Host: c.host}}
		named := make(chan string, 1)
		ended := make(chan error, 1)
		ctx, stop := context.WithCancel(t.Context())
		go func() {
			ended <- runner.Run(ctx, m.runner(split.Options{}), func(ctx context.Context, r *runner.Runner) error {
				named <- r.Name
				<-ctx.Done()
				return nil
			})
		}()
		select {
		case got := <-named:
			if got != c.want {
				t.Errorf("%s: the session is called %s, want %s", c.host, got, c.want)
			}
			defer func() { <-ended }()
			defer stop()
		case err := <-ended:
			stop()
			t.Errorf("%s: %v", c.host, err)
		}
	}
}

func TestMoshUnheard(t *testing.T) {
	heard, silent := split.PathStatus{Down: split.Count{Packets: 1}}, split.PathStatus{}
	for _, c := range []struct {
		sessions []split.Status
		want     string
	}{
		{nil, ""},
		{[]split.Status{{State: "running", Paths: []split.PathStatus{silent, heard}}}, ""},
		{[]split.Status{{State: "running", Server: "192.0.2.1:60001", Paths: []split.PathStatus{silent, silent}}}, "nothing came back from 192.0.2.1:60001"},
		{[]split.Status{{State: "stopped", Why: "1 of 2 paths is up", Paths: []split.PathStatus{silent}}}, "1 of 2 paths is up"},
	} {
		err := unheard(c.sessions)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.sessions, err, c.want)
		}
	}
}

func TestHeldLog(t *testing.T) {
	var held heldLog
	for range mostHeld + 3 {
		io.WriteString(&held, "line\n")
	}
	var out bytes.Buffer
	held.print(&out)
	if got := strings.Count(out.String(), "line\n"); got != mostHeld || !strings.Contains(out.String(), "and 3 lines more") {
		t.Errorf("%d lines: %s", got, &out)
	}
}
