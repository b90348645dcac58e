package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"
)

// Swept is what came of all tries of one target.
type Swept struct {
	Target   string `json:"target"`
	Tries    int    `json:"tries"`
	Answered int    `json:"answered"`
	// First is when the first answer came, in milliseconds after the program began.
	First float64 `json:"first,omitempty"`
	By    string  `json:"by,omitempty"`    // who answered a packet
	Error string  `json:"error,omitempty"` // of the last try
}

// sweep tries all targets over and over from its first moment on, for a while, and then says what came of each, one JSON object a line:
// "tcp:ADDR" is a connection; "udp:ADDR" a packet to an echo; "cast:ADDR" one to a group, which anybody but this pod may answer. With -serve
// it is a server afterwards, so that a pod of it stays.
func sweep(args []string) error {
	begin := time.Now()
	f := flag.NewFlagSet("sweep", flag.ContinueOnError)
	lasts := f.Duration("for", 3*time.Second, "how long")
	stay := f.Bool("serve", false, "be a server afterwards")
	if err := f.Parse(args); err != nil {
		return err
	}
	all := make([]Swept, f.NArg())
	ctx, cancel := context.WithDeadline(context.Background(), begin.Add(*lasts))
	defer cancel()
	var group sync.WaitGroup
	for i, target := range f.Args() {
		all[i].Target = target
		group.Go(func() { all[i].run(ctx, begin) })
	}
	group.Wait()
	out := json.NewEncoder(os.Stdout)
	for _, s := range all {
		if err := out.Encode(s); err != nil {
			return err
		}
	}
	if *stay {
		return serve(nil)
	}
	return nil
}

// patience is how long one try waits: short, so that a moment in which something is open is not missed.
const patience = 400 * time.Millisecond

func (s *Swept) run(ctx context.Context, begin time.Time) {
	kind, addr, _ := strings.Cut(s.Target, ":")
	for ; s.Tries == 0 || ctx.Err() == nil; s.Tries++ {
		by, err := knockAt(kind, addr)
		if err != nil {
			s.Error = err.Error()
		} else {
			if s.Answered++; s.Answered == 1 {
				s.First, s.By = ms(begin), by
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func knockAt(kind, addr string) (by string, err error) {
	switch kind {
	case "tcp":
		c, err := net.DialTimeout("tcp", addr, patience)
		if err != nil {
			return "", err
		}
		return "", c.Close()
	case "udp", "cast":
		to, err := net.ResolveUDPAddr("udp", addr)
		if err != nil {
			return "", err
		}
		c, err := net.ListenUDP("udp", nil) // not connected: who answers a group has an address of its own
		if err != nil {
			return "", err
		}
		defer c.Close()
		if _, err := c.WriteTo([]byte("who is there?"), to); err != nil {
			return "", err
		}
		return answerOf(c)
	}
	return "", fmt.Errorf("%q is none of tcp, udp, cast", kind)
}

// answerOf waits for a packet of somebody else.
func answerOf(c *net.UDPConn) (by string, err error) {
	_ = c.SetDeadline(time.Now().Add(patience))
	me, buf := self().Name, make([]byte, 65536)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			return "", err
		}
		var p Packet
		if err := json.Unmarshal(buf[:n], &p); err == nil && p.Name != me {
			return fmt.Sprint(p.Name, " at ", from), nil
		}
	}
}

// addresses prints those of all interfaces.
func addresses([]string) error {
	all, err := net.InterfaceAddrs()
	for _, a := range all {
		fmt.Println(a)
	}
	return err
}
