package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"heddle/lab"
)

func TestMain(m *testing.M) {
	lab.MaybeEnter()
	testscript.Main(m, map[string]func(){"heddle": main})
}

// The command line as a person meets it, one story a file. What is about one command lies in that command's folder.
func TestScript(t *testing.T) {
	ofCommands, err := filepath.Glob("*/testdata/*.txtar")
	if err != nil || len(ofCommands) == 0 {
		t.Fatal(ofCommands, err)
	}
	of, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Files: append(of, ofCommands...),
		Setup: func(env *testscript.Env) error {
			// A socket's path is short, and the directory of a script is not.
			dir, err := os.MkdirTemp("", "heddle")
			if err != nil {
				return err
			}
			env.Defer(func() { os.RemoveAll(dir) })
			env.Setenv("HEDDLE_RUN_DIR", dir)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"waitfor": waitFor, "waitfile": waitFile},
	})
}

// waitFor NAME waits until a heddle of that name answers on its socket. A name may be a pattern, as in path.Match.
func waitFor(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: waitfor NAME")
	}
	socket := filepath.Join(ts.Getenv("HEDDLE_RUN_DIR"), args[0]+".sock")
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		found, _ := filepath.Glob(socket)
		for _, file := range found {
			if conn, err := net.Dial("unix", file); err == nil {
				conn.Close()
				return
			}
		}
	}
	ts.Fatalf("no heddle called %s answers", args[0])
}

// waitFile FILE waits until a file is there.
func waitFile(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: waitfile FILE")
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(ts.MkAbs(args[0])); err == nil {
			return
		}
	}
	ts.Fatalf("there is no %s", args[0])
}
