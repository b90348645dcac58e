package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// Writes is the report of load redis; times in milliseconds, moments in seconds after the start.
type Writes struct {
	Client    string         `json:"client"`
	Seconds   float64        `json:"seconds"`
	Acked     int            `json:"acked"`
	Failed    int            `json:"failed"`
	Errors    map[string]int `json:"errors,omitempty"`
	Primaries []string       `json:"primaries"` // that took writes, in order
	Gaps      []Gap          `json:"gaps,omitempty"`
	P50       float64        `json:"p50ms"`
	P99       float64        `json:"p99ms"`
	Max       float64        `json:"maxms"`
	// Lost are writes that were acknowledged and are not there at the end; from the first to the last of them.
	Lost     int     `json:"lost"`
	LostFrom float64 `json:"lostFrom,omitzero"`
	LostTo   float64 `json:"lostTo,omitzero"`
	// Checked is the primary that was asked at the end; Unknown says why none could be.
	Checked string `json:"checked,omitempty"`
	Unknown string `json:"unknown,omitempty"`
}

// Gap is a stretch of more than a second without an acknowledged write.
type Gap struct {
	At     float64 `json:"at"`
	Length float64 `json:"ms"`
}

// redis is a client as applications have them: it asks Sentinel who the primary is, keeps one connection to that, and asks
// again after an error.
type redis struct {
	sentinel, name, password string
	timeout                  time.Duration

	primary string
	conn    net.Conn
	in      *bufio.Reader
}

// errRefused is what the server answered instead of doing it.
type errRefused string

func (e errRefused) Error() string { return string(e) }

// writes sets one key after another at a steady rate, until ctx ends; then it looks which of those that were acknowledged
// are still there, for as long as a minute.
func writes(ctx context.Context, client string, r *redis, rate float64) (*Writes, error) {
	if rate <= 0 || rate > 10000 {
		return nil, fmt.Errorf("rate %v: use more than 0, at most 10000", rate)
	}
	w := &Writes{Client: client, Errors: map[string]int{}}
	begin := time.Now()
	last := begin
	var took []time.Duration
	acked := map[int]time.Duration{} // when
	tick := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer tick.Stop()
	for n := 0; ctx.Err() == nil; n++ {
		t := time.Now()
		err := r.set(ctx, key(client, n))
		now := time.Now()
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			w.Failed++
			if kind := kindOf(err); len(w.Errors) < 30 || w.Errors[kind] > 0 {
				w.Errors[kind]++
			}
			r.close()
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
			continue
		}
		if len(w.Primaries) == 0 || w.Primaries[len(w.Primaries)-1] != r.primary {
			w.Primaries = append(w.Primaries, r.primary)
		}
		took, acked[n] = append(took, now.Sub(t)), now.Sub(begin)
		w.gap(begin, last, now)
		last = now
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	w.gap(begin, last, time.Now())
	w.Seconds, w.Acked = time.Since(begin).Seconds(), len(acked)
	w.P50, w.P99, w.Max = quantile(took, .5), quantile(took, .99), quantile(took, 1)
	w.look(r, acked)
	return w, nil
}

func (w *Writes) gap(begin, last, now time.Time) {
	if d := now.Sub(last); d > time.Second {
		w.Gaps = append(w.Gaps, Gap{At: last.Sub(begin).Seconds(), Length: milliseconds(d)})
	}
}

// look asks whoever is the primary now for all that was acknowledged.
func (w *Writes) look(r *redis, acked map[int]time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		lost, err := r.missing(ctx, w.Client, acked)
		if err == nil {
			w.Checked, w.Lost = r.primary, len(lost)
			for i, n := range lost {
				at := acked[n].Seconds()
				if i == 0 || at < w.LostFrom {
					w.LostFrom = at
				}
				w.LostTo = max(w.LostTo, at)
			}
			return
		}
		r.close()
		select {
		case <-ctx.Done():
			w.Unknown = err.Error()
			return
		case <-time.After(time.Second):
		}
	}
}

func key(client string, n int) string { return fmt.Sprintf("w:%s:%d", client, n) }

func (r *redis) set(ctx context.Context, key string) error {
	if err := r.open(ctx); err != nil {
		return err
	}
	_, err := r.do("SET", key, "1")
	return err
}

func (r *redis) missing(ctx context.Context, client string, acked map[int]time.Duration) (lost []int, err error) {
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	for n := range acked {
		answer, err := r.do("EXISTS", key(client, n))
		if err != nil {
			return nil, err
		}
		if answer != "1" {
			lost = append(lost, n)
		}
	}
	return lost, nil
}

// open connects to the primary, unless it is connected.
func (r *redis) open(ctx context.Context) error {
	if r.conn != nil {
		return nil
	}
	if err := r.dial(ctx, r.sentinel); err != nil {
		return fmt.Errorf("sentinel: %w", err)
	}
	_, err := r.do("SENTINEL", "get-master-addr-by-name", r.name)
	var lines []string
	if err == nil {
		lines, err = r.lines(2)
	}
	r.close()
	if err != nil {
		return fmt.Errorf("sentinel: %w", err)
	}
	r.primary = lines[0]
	if err := r.dial(ctx, net.JoinHostPort(lines[0], lines[1])); err != nil {
		return fmt.Errorf("primary: %w", err)
	}
	if r.password != "" {
		if _, err := r.do("AUTH", r.password); err != nil {
			return err
		}
	}
	return nil
}

func (r *redis) dial(ctx context.Context, addr string) error {
	c, err := (&net.Dialer{Timeout: r.timeout}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	r.conn, r.in = c, bufio.NewReader(c)
	return nil
}

func (r *redis) close() {
	if r.conn != nil {
		r.conn.Close()
	}
	r.conn = nil
}

// do sends one command and gives its answer without the type; of an array only how long it is. The form is RESP's.
func (r *redis) do(words ...string) (string, error) {
	_ = r.conn.SetDeadline(time.Now().Add(r.timeout))
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	if _, err := io.WriteString(r.conn, b.String()); err != nil {
		return "", err
	}
	line, err := r.line()
	if err != nil {
		return "", err
	}
	switch line[0] {
	case '-':
		return "", errRefused(line[1:])
	case '+', ':', '*':
		return line[1:], nil
	}
	return "", fmt.Errorf("answer %q", line)
}

// lines reads n strings of an array.
func (r *redis) lines(n int) (list []string, err error) {
	for range n {
		head, err := r.line()
		if err != nil {
			return nil, err
		}
		if _, err := strconv.Atoi(head[1:]); head[0] != '$' || err != nil {
			return nil, fmt.Errorf("answer %q", head)
		}
		body, err := r.line()
		if err != nil {
			return nil, err
		}
		list = append(list, body)
	}
	return list, nil
}

func (r *redis) line() (string, error) {
	line, err := r.in.ReadString('\n')
	if err != nil {
		return "", err
	}
	if line = strings.TrimRight(line, "\r\n"); line == "" {
		return "", errors.New("an empty answer")
	}
	return line, nil
}

// kindOf is an error without what differs each time: addresses and ports.
func kindOf(err error) string {
	var op *net.OpError
	if errors.As(err, &op) {
		before, _, _ := strings.Cut(err.Error(), op.Error())
		return before + op.Op + ": " + op.Err.Error()
	}
	return err.Error()
}
