package send_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/clitest"
	"heddle/cmd/heddle/recv"
	"heddle/cmd/heddle/send"
	"heddle/cmd/heddle/stream"
	"heddle/stripe/transfer"
)

// heddle has the commands that these tests need.
var heddle = clitest.Program{send.Command, recv.Command, stream.Command}

func TestSendAndRecv(t *testing.T) {
	clitest.ShortRunDir(t)
	here, there := heddle.NewDevice(t), heddle.NewDevice(t)
	from, into := t.TempDir(), t.TempDir()
	data := bytes.Repeat([]byte("0123456789abcdef"), 50_000)
	for _, name := range []string{"a", "dir/b"} {
		file := filepath.Join(from, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	received, at := there.Start(`files: listening on (\S+) for 1 key: files into`, "recv", "--into", into, "--listen", "127.0.0.1:0", "--allow", here.Key)
	send := func(more ...string) (int, transfer.Report, string) {
		args := append([]string{"send", filepath.Join(from, "a"), filepath.Join(from, "dir"), "files", "--to", at[1], "--key", there.Key, "--identity", here.File, "--json"}, clitest.TwoPaths...)
		var out, talk clitest.Spoken
		code := heddle.Run(t.Context(), append(args, more...), strings.NewReader(""), &out, &talk)
		var answer struct{ transfer.Report }
		if err := json.Unmarshal([]byte(out.String()), &answer); err != nil {
			t.Fatalf("%v\n%s%s", err, &out, &talk)
		}
		return code, answer.Report, talk.String()
	}
	if code, report, _ := send("--dry-run"); code != cli.ExitOK || len(report.Files) != 2 || report.Files[0].State != transfer.StateWould {
		t.Errorf("a dry run: exit code %d, %+v", code, report)
	}
	code, report, talk := send()
	if code != cli.ExitOK || report.Missing() != 0 || report.Bytes != int64(2*len(data)) || !strings.Contains(talk, "claim: ") {
		t.Errorf("exit code %d, %+v\n%s", code, report, talk)
	}
	for _, name := range []string{"a", "dir/b"} {
		if got, err := os.ReadFile(filepath.Join(into, name)); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	if code, report, _ := send(); code != cli.ExitOK || report.Bytes != 0 || report.Files[0].State != transfer.StateThere {
		t.Errorf("again: exit code %d, %+v", code, report)
	}
	if err := os.WriteFile(filepath.Join(into, "a"), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, report, talk := send(); code != cli.ExitFailure || report.Missing() != 1 || !strings.Contains(talk, "1 of 2 files did not arrive") {
		t.Errorf("with another file there: exit code %d, %+v\n%s", code, report, talk)
	}
	for deadline := time.Now().Add(time.Minute); !strings.Contains(received.String(), "refused  a"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the receiver says\n%s", received)
		}
	}
}

// A service that carries a program takes no files.
func TestSendToAProgram(t *testing.T) {
	clitest.ShortRunDir(t)
	here, there := heddle.NewDevice(t), heddle.NewDevice(t)
	_, at := there.Start(`echo: listening on (\S+) for 1 key`, "stream", "serve", "--name", "echo", "--to", clitest.EchoServer(t), "--listen", "127.0.0.1:0", "--allow", here.Key)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"send", file, "echo", "--tries", "1", "--to", at[1], "--key", there.Key, "--identity", here.File, "--patience", "30s"}, clitest.TwoPaths...)
	var said clitest.Spoken
	if code := heddle.Run(t.Context(), args, strings.NewReader(""), &said, &said); code != cli.ExitFailure || !strings.Contains(said.String(), "does not know what else was sent") {
		t.Errorf("exit code %d\n%s", code, &said)
	}
}
