package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Try is what came of one line of tries.
type Try struct {
	Line string `json:"line"` // as it was read
	// Connected says that somebody answered the handshake of TCP; for UDP, that an answer came.
	Connected bool `json:"connected"`
	// Name and PodIP are those of the echo that answered, Client the address it saw, without port.
	Name   string  `json:"name,omitempty"`
	PodIP  string  `json:"podIP,omitempty"`
	Client string  `json:"client,omitempty"`
	Lost   int     `json:"lost,omitempty"` // packets that had no answer before one had
	MS     float64 `json:"ms"`
	Error  string  `json:"error,omitempty"`
}

const (
	atOnce   = 64 // tries
	knock    = 30 * time.Second
	glance   = 3 * time.Second // for an answer that must not come
	transfer = time.Minute
)

// tries reads lines from its input, "tcp ADDR BYTES", "udp ADDR BYTES" and "dial ADDR", tries them all, many at once, and says what came
// of each, one JSON object a line, in the same order. What is sent to another echo is checked by its hash. That some fail is no error.
// A line that begins with "closed " is given up soon: nobody is to answer.
func tries(args []string) error {
	if len(args) > 0 {
		return errUse
	}
	var lines []string
	for s := bufio.NewScanner(os.Stdin); s.Scan(); {
		if line := strings.TrimSpace(s.Text()); line != "" {
			lines = append(lines, line)
		}
	}
	out := json.NewEncoder(os.Stdout)
	for _, t := range tryAll(lines) {
		if err := out.Encode(t); err != nil {
			return err
		}
	}
	return nil
}

func tryAll(lines []string) []Try {
	all := make([]Try, len(lines))
	var group sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for i, line := range lines {
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			t, begin := &all[i], time.Now()
			t.Line = line
			if err := t.run(context.Background()); err != nil {
				t.Error = err.Error()
			}
			t.MS = ms(begin)
		})
	}
	group.Wait()
	return all
}

func (t *Try) run(ctx context.Context) error {
	line, closed := strings.CutPrefix(t.Line, "closed ")
	f := append(strings.Fields(line), "0", "0", "0")
	size, err := strconv.Atoi(f[2])
	if err != nil {
		return err
	}
	if closed {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, glance)
		defer cancel()
	}
	switch f[0] {
	case "dial":
		c, err := t.dial(ctx, "tcp", f[1])
		if err == nil {
			c.Close()
		}
		return err
	case "tcp":
		return t.post(ctx, f[1], int64(size))
	case "udp":
		return t.packet(ctx, f[1], size)
	}
	return fmt.Errorf("%q is none of tcp, udp, dial", f[0])
}

func (t *Try) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: knock}).DialContext(ctx, network, addr)
	t.Connected = err == nil
	return c, err
}

// post sends so many bytes to another echo.
func (t *Try) post(ctx context.Context, addr string, size int64) error {
	ctx, cancel := context.WithTimeout(ctx, transfer)
	defer cancel()
	sum := sha256.New()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/sink", io.TeeReader(blobReader(size), sum))
	if err != nil {
		return err
	}
	r.ContentLength = size
	resp, err := (&http.Transport{DisableKeepAlives: true, DialContext: t.dial, ResponseHeaderTimeout: transfer}).RoundTrip(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var a Answer
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		return fmt.Errorf("%s: %w", resp.Status, err)
	}
	t.answered(a.Self, a.Client)
	if want := hex.EncodeToString(sum.Sum(nil)); a.Bytes != size || a.SHA256 != want {
		return fmt.Errorf("%s got %d bytes with hash %s, sent were %d with %s", addr, a.Bytes, a.SHA256, size, want)
	}
	return nil
}

// packet sends one of so many bytes, and again when there is no answer: UDP may lose any.
func (t *Try) packet(ctx context.Context, addr string, size int) (err error) {
	for t.Lost = 0; t.Lost < 3 && ctx.Err() == nil; t.Lost++ {
		var p *Packet
		if p, err = sendPacket(ctx, addr, size); err == nil {
			t.Connected = true
			t.answered(p.Self, p.Client)
			return nil
		}
	}
	return err
}

func (t *Try) answered(who Self, client string) {
	t.Name, t.PodIP = who.Name, who.PodIP
	t.Client, _, _ = net.SplitHostPort(client)
}

// reverse prints the names of an address.
func reverse(args []string) error {
	addr, err := one(args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	names, err := net.DefaultResolver.LookupAddr(ctx, addr)
	for _, n := range names {
		fmt.Println(n)
	}
	return err
}
