package status

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"heddle/board"
	"heddle/board/space"
	"heddle/cmd/heddle/internal/clitest"
	"heddle/cmd/heddle/internal/control"
	"heddle/cmd/heddle/internal/runner"
	"heddle/overlay/client"
)

func TestStatusOfNodesAndBoards(t *testing.T) {
	tokyo := client.Status{Name: "tokyo", Modes: []string{"forward", "survey"}, Listen: "[::]:7443", Since: *ago(25 * time.Hour), Strangers: 1,
		FlowsOpen: 2, Flows: 1204, Up: 2_119_680, Down: 90_511_240, Refused: map[client.Reason]uint64{client.Reasons()[0]: 3}, Grants: make([]client.GrantStatus, 2)}
	open := control.Board{Listen: "127.0.0.1:7300", Since: *ago(time.Minute), Status: board.Status{Members: -1, Limits: space.DefaultLimits()}}
	closed := open
	closed.Members, closed.Waiting, closed.Usage = 1, 2, space.Usage{Tuples: 1, Bytes: 4200, Authors: 1, Version: 7}
	var out bytes.Buffer
	all := []running{{Name: "board-7300", Status: control.Status{Board: &open}}, {Name: "board-7301", Status: control.Status{Board: &closed}},
		{Name: "node-tokyo", Status: control.Status{Node: &tokyo}}}
	if err := printStatus(&out, answer{Running: all}, statusNow, 0); err != nil {
		t.Fatal(err)
	}
	clitest.Golden(t, "status-overlay.golden", out.String())
	text, err := json.Marshal(answer{Running: all})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"board":{"listen":"127.0.0.1:7300"`, `"tuples":1,"bytes":4200`, `"members":-1`, `"node":{"name":"tokyo"`, `"flows_open":2`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the JSON lacks %s:\n%s", want, text)
		}
	}
}

// A node has to run also where another one has its name; who asks is told of the first.
func TestTwoOfAName(t *testing.T) {
	t.Setenv("HEDDLE_RUN_DIR", t.TempDir())
	var talk bytes.Buffer
	list := func() (names []string) {
		found, err := lookAt(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range found.Running {
			if r.Node != nil {
				names = append(names, r.Name+" "+r.Node.Listen)
			}
		}
		return names
	}
	run := func(listen string, body func(context.Context) error) {
		o := runner.Options{Name: "node-tokyo", Taken: runner.GoUnseen, Talk: &talk}
		err := runner.Run(t.Context(), o, func(ctx context.Context, r *runner.Runner) error {
			r.Show(func() control.Status { return control.Status{Node: &client.Status{Name: "tokyo", Listen: listen}} })
			return body(ctx)
		})
		if err != nil {
			t.Error(err)
		}
	}
	ran := 0
	run("first", func(context.Context) error {
		run("second", func(context.Context) error {
			ran++
			return nil
		})
		if got := list(); len(got) != 1 || got[0] != "node-tokyo first" {
			t.Errorf("listed: %v", got)
		}
		ran++
		return nil
	})
	if ran != 2 || !strings.Contains(talk.String(), "heddle status will not show it: node-tokyo is already running") {
		t.Errorf("%d ran: %s", ran, &talk)
	}
	if got := list(); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
}
