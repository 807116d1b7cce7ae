package cloud

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/errhint"
	"heddle/pseudonym/ca"
	"heddle/pseudonym/gateway"
)

func TestGatewayIdentity(t *testing.T) {
	o := Options{Zone: "cloud.example", Dir: filepath.Join(t.TempDir(), "cloud"), Log: slog.New(slog.DiscardHandler)}
	if err := Create(o.Dir, o.Zone, time.Now()); err != nil {
		t.Fatal(err)
	}
	key, err := GatewayIdentity(o)
	if err != nil {
		t.Fatal(err)
	}
	seal, err := readGatewaySeal(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := gatewayIdentity(seal); err != nil || ca.KeyOf(c.Leaf) != key {
		t.Errorf("a gateway shows another key than the one that agents get: %v", err)
	}
	for mode, moves := range map[gateway.Mode]bool{gateway.Auto: true, "": true, gateway.Pass: false, gateway.Relay: false} {
		o.Mode = mode
		if m, err := newMover(o, seal, nil); err != nil || (m != nil) != moves {
			t.Errorf("%q: %v, %v", mode, m, err)
		}
	}
	o.Mode = gateway.Handoff
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		header, none := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
		if err := unix.Capset(&header, &none[0]); err != nil {
			failed <- err
			return
		}
		_, err := newMover(o, seal, (&Cloud{o: o}).openSwitch)
		failed <- err
	}()
	if err := <-failed; !errors.Is(err, unix.EPERM) || !strings.Contains(errhint.Of(err), "CAP_NET_ADMIN") {
		t.Errorf("without a right: %v; %s", err, errhint.Of(err))
	}
	if err := os.Remove(filepath.Join(o.Dir, GatewayKey)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if _, err := GatewayIdentity(o); err == nil || !strings.Contains(errhint.Of(err), "init --renew") {
		t.Errorf("without a key: %v; %s", err, errhint.Of(err))
	}
	if _, err := newMover(o, nil, nil); err == nil {
		t.Error("it moves connections without a key")
	}
}
