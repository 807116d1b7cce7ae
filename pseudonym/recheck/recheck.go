// Package recheck finds the pseudonyms of open connections that may not be used any more, after changes of which not all may be known.
package recheck

import (
	"context"
	"sync"
	"time"

	"heddle/internal/netutil"
	"heddle/pseudonym"
)

// Times and sizes of questions.
const (
	AtOnce   = 1000                   // labels of a question
	answerIn = time.Second            // for each
	retry    = 500 * time.Millisecond // after one without an answer
)

// Checker asks for labels until there is an answer for each. It is safe for concurrent use.
type Checker struct {
	// Ended returns those of some labels that may not be used.
	Ended func(context.Context, []pseudonym.Label) ([]pseudonym.Label, error)
	// End ends the connections of a label.
	End func(pseudonym.Label)
	// Open reports whether a label has connections.
	Open func(pseudonym.Label) bool

	mu   sync.Mutex
	due  map[pseudonym.Label]bool
	runs bool
	done sync.WaitGroup
}

// Check asks for labels, beside the caller. What it asks for when there is no answer it asks again, until ctx ends.
func (c *Checker) Check(ctx context.Context, labels ...pseudonym.Label) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.due == nil {
		c.due = map[pseudonym.Label]bool{}
	}
	for _, l := range labels {
		c.due[l] = true
	}
	if len(c.due) > 0 && !c.runs {
		c.runs = true
		c.done.Go(func() { c.run(ctx) })
	}
}

// Wait waits until there is nothing to ask for.
func (c *Checker) Wait() { c.done.Wait() }

func (c *Checker) run(ctx context.Context) {
	for {
		some := c.some()
		if len(some) == 0 {
			return
		}
		if err := c.ask(ctx, some); err == nil {
			continue
		}
		c.mu.Lock()
		for _, l := range some {
			c.due[l] = true
		}
		c.mu.Unlock()
		if netutil.Sleep(ctx, retry) != nil {
			c.mu.Lock()
			c.runs = false
			c.mu.Unlock()
			return
		}
	}
}

// some takes labels that have connections. If there are none, run has to end.
func (c *Checker) some() (all []pseudonym.Label) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for l := range c.due {
		if len(all) == AtOnce {
			break
		}
		delete(c.due, l)
		if c.Open(l) {
			all = append(all, l)
		}
	}
	c.runs = len(all) > 0
	return all
}

func (c *Checker) ask(ctx context.Context, labels []pseudonym.Label) error {
	ctx, cancel := context.WithTimeout(ctx, answerIn)
	defer cancel()
	ended, err := c.Ended(ctx, labels)
	for _, l := range ended {
		c.End(l)
	}
	return err
}
