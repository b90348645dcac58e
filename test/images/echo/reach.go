package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"time"
)

// mostBody is how much of a fetched body an answer quotes; its hash is of all of it.
const mostBody = 64 << 10

// call fetches another URL from here.
func (s *server) call(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, r.URL.Query().Get("url"), nil)
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	resp, err := s.client.Do(req)
	if err != nil {
		answer(w, http.StatusBadGateway, Answer{Error: err.Error(), MS: ms(begin)})
		return
	}
	defer resp.Body.Close()
	h := sha256.New()
	body, err := io.ReadAll(io.LimitReader(io.TeeReader(resp.Body, h), mostBody))
	n := int64(len(body))
	if err == nil {
		var rest int64
		rest, err = io.Copy(h, resp.Body)
		n += rest
	}
	a := Answer{Status: resp.StatusCode, Body: string(body), Bytes: n, SHA256: hex.EncodeToString(h.Sum(nil)), MS: ms(begin)}
	if err != nil {
		a.Error = err.Error()
		answer(w, http.StatusBadGateway, a)
		return
	}
	answer(w, http.StatusOK, a)
}

// dial tries a connection and tells both its ends.
func (s *server) dial(w http.ResponseWriter, r *http.Request) {
	network := r.URL.Query().Get("network")
	if network == "" {
		network = "tcp"
	}
	begin := time.Now()
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, network, r.URL.Query().Get("addr"))
	if err != nil {
		answer(w, http.StatusBadGateway, Answer{Error: err.Error(), MS: ms(begin)})
		return
	}
	defer c.Close()
	answer(w, http.StatusOK, Answer{Local: c.LocalAddr().String(), Remote: c.RemoteAddr().String(), MS: ms(begin)})
}

// udp sends one packet of ?size= bytes to another echo and tells its answer.
func (s *server) udp(w http.ResponseWriter, r *http.Request) {
	size, err := strconv.Atoi(r.URL.Query().Get("size"))
	if r.URL.Query().Get("size") == "" {
		size, err = 64, nil
	}
	if err != nil || size < 0 || size > 65507 {
		refuse(w, http.StatusBadRequest, fmt.Errorf("size=%q: use 0 to 65507", r.URL.Query().Get("size")))
		return
	}
	begin := time.Now()
	p, err := sendPacket(r.Context(), r.URL.Query().Get("addr"), size)
	if err != nil {
		answer(w, http.StatusBadGateway, Answer{Error: err.Error(), MS: ms(begin)})
		return
	}
	answer(w, http.StatusOK, Answer{Reply: p, MS: ms(begin)})
}

func sendPacket(ctx context.Context, addr string, size int) (*Packet, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "udp", addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	late := time.Now().Add(3 * time.Second)
	if ends, ok := ctx.Deadline(); ok && ends.Before(late) {
		late = ends
	}
	_ = c.SetDeadline(late)
	out := make([]byte, size)
	_, _ = io.ReadFull(blobReader(int64(size)), out)
	if _, err := c.Write(out); err != nil {
		return nil, err
	}
	in := make([]byte, 65536)
	n, err := c.Read(in)
	if err != nil {
		return nil, err
	}
	var p Packet
	if err := json.Unmarshal(in[:n], &p); err != nil {
		return nil, fmt.Errorf("answer of %s: %w", addr, err)
	}
	sum := sha256.Sum256(out)
	if want := hex.EncodeToString(sum[:]); p.SHA256 != want || p.Bytes != size {
		return nil, fmt.Errorf("%s got %d bytes with hash %s, sent were %d with %s", addr, p.Bytes, p.SHA256, size, want)
	}
	return &p, nil
}

// blobReader gives n bytes, always the same and not compressible.
func blobReader(n int64) io.Reader {
	return io.LimitReader(rand.NewChaCha8([32]byte{'k', 'i', 't', 'h'}), n)
}
