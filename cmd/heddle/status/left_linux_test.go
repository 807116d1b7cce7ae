package status

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/cmd/heddle/internal/control"
	"heddle/path"
)

// A journal of a session that does not run says what a crash left. One of a session that runs does not.
func TestStatusNamesWhatACrashLeft(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HEDDLE_RUN_DIR", dir)
	const journal = `[{"kind":"firewall","change":{"table":"heddle_x","device":"x","kill_switch":true,"within":["10.0.0.0/8"]}},` +
		`{"kind":"device","change":{"device":"x"}}]`
	for _, name := range []string{"office", "lab"} {
		if err := os.WriteFile(filepath.Join(dir, name+".journal.json"), []byte(journal), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "mail.kernel.json"), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	const forwarding = `[{"kind":"forwarding","change":{"table":"heddle_nat","setting":{"file":"/proc/sys/net/ipv4/ip_forward","new":"1","old":"0"}}}]`
	if err := os.WriteFile(filepath.Join(dir, "node-a.nat.json"), []byte(forwarding), 0o600); err != nil {
		t.Fatal(err)
	}
	server, err := control.Listen("lab")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	all, err := lookLeft(nil)
	if err != nil || len(all) != 3 || all[0].Name != "mail" || all[1].Name != "node-a" || all[2].Name != "office" || len(all[2].Changes) != 1 {
		t.Fatalf("found %v, %v", all, err)
	}
	if lines := all[1].Changes; len(lines) != 1 || !strings.HasPrefix(lines[0], "sysctl net.ipv4.ip_forward=1 (it is 0), for leases alone") {
		t.Errorf("of a node: %q", lines)
	}
	one, err := lookAt(t.Context(), []string{"office"})
	if err != nil || len(one.Running) != 0 || len(one.Left) != 1 {
		t.Fatalf("found %v, %v", one, err)
	}
	var out bytes.Buffer
	if err := printStatus(&out, one, statusNow, 0); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"nothing is running\n", "office: not running", "`heddle down office`", "nft add table inet heddle_x (guard: packets to 10.0.0.0/8"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	out.Reset()
	passing := answer{Passing: []path.Leftover{
		{What: "nft table inet heddle_late_answers", Blocks: "ICMP errors to 192.0.2.1", Ends: statusNow.Add(252 * time.Second), When: "5m0s after the last renewal", By: "nft delete"},
		{What: "process 47 (heddle-keeper)", Blocks: "answers for 2 sockets", When: "once nothing arrives", By: "kill 47"}}}
	if err := printStatus(&out, passing, statusNow, 0); err != nil {
		t.Fatal(err)
	}
	const want = "nft table inet heddle_late_answers: of a session that ended\n  blocks ICMP errors to 192.0.2.1\n" +
		"  ends by itself in 4m12s, 5m0s after the last renewal; `nft delete` ends it now\n\n" +
		"process 47 (heddle-keeper): of a session that ended\n  blocks answers for 2 sockets\n  ends by itself once nothing arrives; `kill 47` ends it now\n"
	if !strings.HasSuffix(out.String(), want) {
		t.Errorf("no\n%s in\n%s", want, out.String())
	}
	var gone *control.NotRunningError
	if _, err := lookAt(t.Context(), []string{"other"}); !errors.As(err, &gone) {
		t.Errorf("status of one that left nothing gives %v", err)
	}
}
