package path

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"heddle/internal/answers"
	"heddle/internal/keeper"
)

// guarded is how this process keeps the kernel's answers off other networks: by the firewall, or without the right to change
// that by a keeper.
var guarded struct {
	sync.Mutex
	on      bool
	refused error // why the firewall does not
	servers []netip.Addr
	keeper  *keeper.Keeper // nil if the firewall does, or no keeper could be started
}

const (
	renewAnswers = 30 * time.Second
	// mostGuarded limits the servers that are renewed. The oldest are forgotten first.
	mostGuarded = 1024
)

// GuardProcess makes this process keep the kernel's own answers to what arrives by a path off all other networks, also after
// the process was killed. It changes the firewall of the machine, or starts another process. Main calls it, and tests of
// packages do not.
func GuardProcess() {
	keeper.MaybeKeep()
	guarded.Lock()
	defer guarded.Unlock()
	guarded.on = true
}

// GuardAnswers is for backends whose packets to a server leave by no socket of this package.
func GuardAnswers(server netip.Addr) { guard(server) }

// guard guards a server before the first packet goes there.
func guard(server netip.Addr) {
	server = server.Unmap().WithZone("")
	guarded.Lock()
	defer guarded.Unlock()
	if !guarded.on || server.IsLoopback() || guarded.refused != nil || slices.Contains(guarded.servers, server) {
		return
	}
	if guarded.refused = answers.Guard(server); guarded.refused != nil {
		guarded.keeper, _ = keeper.Start() // without it, sockets linger in this process only
		return
	}
	if guarded.servers = append(guarded.servers, server); len(guarded.servers) == 1 {
		go renewGuard()
	}
	guarded.servers = guarded.servers[max(0, len(guarded.servers)-mostGuarded):]
}

// RemoveGuard removes the guard's table if nothing is guarded any more.
func RemoveGuard() error { return answers.RemoveEmpty() }

// renewGuard keeps the guard for as long as this process runs.
func renewGuard() {
	for range time.Tick(renewAnswers) {
		guarded.Lock()
		servers := slices.Clone(guarded.servers)
		guarded.Unlock()
		_ = answers.Guard(servers...) // the next try is before the entries end
	}
}

// heldID names a socket that the keeper holds too; 0 is none.
type heldID = keeper.ID

// hold gives a socket to the keeper, if this process has one.
func hold(fd int, stream bool) keeper.ID {
	guarded.Lock()
	k := guarded.keeper
	guarded.Unlock()
	id, err := k.Hold(fd, stream)
	if err != nil {
		return 0 // the keeper ended, or is stuck
	}
	return id
}

// release lets the keeper close its duplicate, and reports whether it will.
func release(held heldID, whenQuiet bool) bool {
	guarded.Lock()
	defer guarded.Unlock()
	return guarded.keeper.Release(held, whenQuiet) == nil
}
