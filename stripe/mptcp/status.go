package mptcp

import (
	"fmt"

	"heddle/stripe"
)

const (
	stateDialling = "dialling"
	stateUp       = "up"
	stateStalled  = "stalled"
	stateDown     = "down"
)

// Claim says what the connection hides and what it does not. The limits are the kernel's.
func (c *Conn) Claim() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return claim(c.quorum.Min, len(c.members), c.quorum.Degrade)
}

func claim(required, paths int, degrade bool) string {
	text := fmt.Sprintf("Linux MPTCP over %d subflows, TLS 1.3 from end to end inside. ", paths) +
		"Each node's networks see the TCP of their own subflow: addresses, sizes, times and a part of the encrypted stream, which the kernel chooses, not Heddle; each node sees your address and the peer's. " +
		"MPTCP's keys cross the first subflow in the clear, so that who sees it can add a subflow of their own and take a part of the encrypted stream. " +
		"There is ONE SCHEDULER, which fills the fastest subflow first: no share is promised, and a message of less than some tens of kB takes ONE subflow whole. " +
		"It FAILS OPEN: what a dying subflow holds is sent again over the others by the kernel, with what it already took to send, before Heddle stops. "
	if degrade {
		return text + "With --degrade the rest follows over whatever is left, even one subflow."
	}
	return text + fmt.Sprintf("Heddle writes nothing while fewer than %d are up, and ends the connection if that lasts. --backend stripe promises more.", required)
}

// Status returns the state in the form of package stripe, with the schedule "kernel". Counts are TCP's, with
// retransmissions, and can lack the last [lookEvery] of a subflow. A path can also be "stalled": the peer acknowledges no
// data.
func (c *Conn) Status() stripe.Status {
	_, _ = c.look(false)
	i, _ := c.socket.info()
	c.mu.Lock()
	defer c.mu.Unlock()
	s := stripe.Status{Session: fmt.Sprintf("%08x", c.token), Peer: c.peer, Service: c.service, Schedule: "kernel", Shares: "none",
		MinPaths: c.quorum.Min, Degrade: c.quorum.Degrade, State: "running", Since: c.since, Claim: claim(c.quorum.Min, len(c.members), c.quorum.Degrade),
		Sent: c.sent.Load(), Received: c.received.Load(), Unproved: i.unacknowledged}
	failure := c.failure()
	switch {
	case failure != nil:
		s.State, s.Why = "failed", failure.Error()
	case c.ctx.Err() != nil, c.ended && c.socket.ended():
		s.State = "closed"
	case !c.quorum.Enough():
		s.State, s.Why = "stopped", fmt.Sprintf("fewer than %d paths are up", c.quorum.Need())
	}
	for _, w := range c.members {
		s.Paths = append(s.Paths, w.PathStatus)
	}
	s.FillShares()
	return s
}
