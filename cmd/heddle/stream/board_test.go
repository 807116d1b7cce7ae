package stream

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"heddle/board/registry"
	"heddle/cmd/heddle/asn"
	"heddle/cmd/heddle/board"
	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/clitest"
	"heddle/cmd/heddle/node"
	"heddle/identity"
	"heddle/overlay/client"
)

// heddle has the commands that these tests need.
var heddle = clitest.Program{Command, board.Command, node.Command, asn.Command}

// A device that knows a board and holds one grant needs neither addresses nor keys.
func TestStreamByBoardAndChosenNodes(t *testing.T) {
	clitest.ShortRunDir(t)
	home := t.TempDir()
	t.Setenv("HEDDLE_HOME", home)
	own := filepath.Join(home, "identity.pem")
	id, _, err := identity.LoadOrCreate(own)
	if err != nil {
		t.Fatal(err)
	}
	here := heddle.Device(t, own)
	_, at := heddle.Start(t, `heddle board use (\S+)`, "board", "run", "--open", "--listen", "127.0.0.1:0", "--state", t.TempDir())
	board := at[1]
	if code, talk := heddle.Quietly(t, "board", "use", board); code != cli.ExitOK {
		t.Fatal(talk)
	}
	nodes := map[string]clitest.Device{}
	for _, name := range []string{"n1", "n2", "n3"} {
		nodes[name] = heddle.NewDevice(t)
		_, found := nodes[name].Start(`listens on (\S+) `, "node", "run", "--name", name, "--listen", "127.0.0.1:0", "--address", "127.0.0.1:1", "--grantor", here.Key)
		// What listens on port 0 can say where only once it runs: the board is told by a registration of the test's own.
		putOnBoard(t, nodes[name], board, registry.Node{Name: name, Addresses: []string{found[1]}, Modes: []string{"forward"}})
	}
	there := heddle.NewDevice(t)
	there.Start(`echo: listening on`, "stream", "serve", "--name", "echo", "--to", clitest.EchoServer(t), "--listen", "127.0.0.1:0", "--allow", here.Key, "--board", board)
	awaitListed(t, "streams", "echo")
	dial := []string{"stream", "dial", "echo", "--listen", "127.0.0.1:0", "--paths", "3", "--shares", "2of3"}
	if code, talk := heddle.Quietly(t, dial...); code != cli.ExitFailure || !strings.Contains(talk, "3 nodes are asked for, and this user may use 0") {
		t.Errorf("without a grant: exit code %d\n%s", code, talk)
	}
	grantFor(t, id, home, nodes["n1"])
	said, up := here.Start(`echo is up: listening on (\S+), to \S+ over 3 paths, 2of3 shares`, dial...)
	for _, want := range []string{"is the word of the board", "of 3: those that answer first, which says nothing of the networks that they share", "kept", "n2", "n3"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, said)
		}
	}
	if got := clitest.Echoed(t, up[1], "hello"); got != "hello" {
		t.Errorf("%q came back", got)
	}
	// Where the board is gone its list of the last time serves, with its age, unless that is too old.
	key, _, _ := strings.Cut(board, "@")
	gone := []string{"--board", key + "@127.0.0.1:1", "--identity", own}
	patience := directoryPatience
	defer func() { directoryPatience = patience }()
	directoryPatience = 300 * time.Millisecond
	clitest.ShortRunDir(t) // two that dial one service have one name
	said, up = heddle.Start(t, `echo is up: listening on (\S+), to \S+ over 3 paths`, append(dial, gone...)...)
	if !regexp.MustCompile(`board: this list is of .* ago`).MatchString(said.String()) {
		t.Errorf("it does not say how old the list is:\n%s", said)
	}
	if got := clitest.Echoed(t, up[1], "hello"); got != "hello" {
		t.Errorf("without the board %q came back", got)
	}
	clitest.ShortRunDir(t)
	if code, talk := heddle.Quietly(t, append(append(dial, gone...), "--max-age", "1ns")...); code != cli.ExitFailure || !strings.Contains(talk, "too old") {
		t.Errorf("with a list that is too old: exit code %d\n%s", code, talk)
	}
	if code, talk := heddle.Quietly(t, "stream", "dial", "absent", "--listen", "127.0.0.1:0", "--paths", "3"); code != cli.ExitFailure || !strings.Contains(talk, "stream absent: none is registered") {
		t.Errorf("a name that is not there: exit code %d\n%s", code, talk)
	}
}

// register puts a node on the board by `heddle board out`, as its own key.
func putOnBoard(t *testing.T, d clitest.Device, board string, n registry.Node) {
	t.Helper()
	key, err := identity.ParseKey(d.Key)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"board", "out", "heddle-node", n.Name, fmt.Sprintf("bytes:%x", key.Bytes()), fmt.Sprintf("[%q]", n.Addresses[0]), strings.Join(n.Modes, ","), "int:0",
		"--lease", "10m", "--board", board, "--identity", d.File}
	if code, talk := heddle.Quietly(t, args...); code != cli.ExitOK {
		t.Fatal(talk)
	}
}

// awaitListed waits until the board lists a name.
func awaitListed(t *testing.T, what, name string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if code, list := heddle.Quietly(t, "board", what); code == cli.ExitOK && strings.Contains(list, name) {
			return
		}
	}
	t.Fatalf("the board does not list %s", name)
}

// grantFor keeps one grant for every node of the grantor, in the pass of one of them, whose address is stale.
func grantFor(t *testing.T, id identity.Identity, home string, d clitest.Device) {
	t.Helper()
	now := time.Now()
	signed, err := client.Issue(id, client.Grant{Holder: id.Key(), From: now.Add(-time.Minute), Until: now.Add(time.Hour), To: []string{"127.0.0.1"}, Modes: []string{client.ModeForward}})
	if err != nil {
		t.Fatal(err)
	}
	key, err := identity.ParseKey(d.Key)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(home, "nodes")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := (client.Pass{Name: "kept", Key: key, Addresses: []string{"127.0.0.1:1"}, Grant: signed}).Save(dir); err != nil {
		t.Fatal(err)
	}
}
