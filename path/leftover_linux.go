package path

import (
	"fmt"
	"strings"
	"time"

	"heddle/internal/answers"
	"heddle/internal/keeper"
)

// Leftovers lists what processes that ended left against the kernel's answers, as far as this user may look. Where alone says that
// no session runs, that is the whole guard; otherwise the part that nobody renews.
func Leftovers(now time.Time, alone bool) (all []Leftover) {
	var servers []string
	var longest time.Duration
	entries, _ := answers.Entries() // needs CAP_NET_ADMIN
	for _, e := range entries {
		if alone || e.Left < answers.Lasting-2*renewAnswers {
			servers = append(servers, e.Server.String())
			longest = max(longest, e.Left)
		}
	}
	if len(servers) > 0 {
		all = append(all, Leftover{What: "nft table inet " + answers.Table, Blocks: "this machine's ICMP errors and TCP resets to " + strings.Join(servers, ", "),
			Ends: now.Add(longest).Truncate(time.Second),
			When: fmt.Sprintf("%v after the last renewal", answers.Lasting), By: "nft delete table inet " + answers.Table})
	}
	for _, k := range keeper.All() {
		all = append(all, Leftover{What: fmt.Sprintf("process %d (heddle-keeper)", k.PID),
			Blocks: fmt.Sprintf("this machine's answers to what still arrives for %d sockets of a session that ended", k.Sockets),
			When:   fmt.Sprintf("once nothing has arrived for %v, and at most %v after the session", keeper.Quiet, keeper.Most),
			By:     fmt.Sprintf("kill %d", k.PID)})
	}
	return all
}
