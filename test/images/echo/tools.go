package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// errUse is for a tool called without what it needs.
var errUse = errors.New("which one? give it as an argument")

func one(args []string) (string, error) {
	if len(args) != 1 {
		return "", errUse
	}
	return args[0], nil
}

// fetch is GET with one try and a deadline for the whole.
func fetch(args []string, to io.Writer) (*http.Response, error) {
	url, err := one(args)
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Timeout: 60 * time.Second}).Get(url)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(to, resp.Body); err != nil {
		return nil, err
	}
	if resp.StatusCode >= 400 {
		return resp, errors.New(resp.Status)
	}
	return resp, nil
}

func get(args []string) error {
	_, err := fetch(args, os.Stdout)
	return err
}

// hashURL prints the hash of what it fetches, and fails if the server's header X-Sha256 names another.
func hashURL(args []string) error {
	h := sha256.New()
	resp, err := fetch(args, h)
	if err != nil {
		return err
	}
	sum := fmt.Sprintf("%x", h.Sum(nil))
	fmt.Println(sum)
	if want := resp.Header.Get("X-Sha256"); want != "" && want != sum {
		return fmt.Errorf("the server sent %s", want)
	}
	return nil
}

func dial(args []string) error {
	addr, err := one(args)
	if err != nil {
		return err
	}
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	fmt.Println(c.LocalAddr(), "->", c.RemoteAddr())
	return nil
}

func lookup(args []string) error {
	host, err := one(args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupHost(ctx, host)
	for _, a := range addrs {
		fmt.Println(a)
	}
	return err
}

// cat copies the files, or its input, to its output.
func cat(args []string) error {
	if len(args) == 0 {
		args = []string{"-"}
	}
	for _, a := range args {
		f := os.Stdin
		if a != "-" {
			var err error
			if f, err = os.Open(a); err != nil {
				return err
			}
			defer f.Close()
		}
		if _, err := io.Copy(os.Stdout, f); err != nil {
			return err
		}
	}
	return nil
}

func ls(args []string) error {
	if len(args) == 0 {
		args = []string{"."}
	}
	for _, a := range args {
		if err := listDir(os.Stdout, a); err != nil {
			return err
		}
	}
	return nil
}

func listDir(w io.Writer, path string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		fmt.Fprintln(w, e.Name())
	}
	return nil
}

func echo(args []string) error {
	fmt.Println(strings.Join(args, " "))
	return nil
}

func env([]string) error {
	all := os.Environ()
	slices.Sort(all)
	fmt.Println(strings.Join(all, "\n"))
	return nil
}

// sleep takes seconds, a duration as 1m30s, or "infinity".
func sleep(args []string) error {
	s, err := one(args)
	if err != nil {
		return err
	}
	if s == "infinity" {
		time.Sleep(math.MaxInt64) // an empty select would be a deadlock
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		if d, err = time.ParseDuration(s + "s"); err != nil {
			return err
		}
	}
	time.Sleep(d)
	return nil
}

// post sends an empty POST.
func post(args []string) error {
	url, err := one(args)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Timeout: 10 * time.Second}).Post(url, "text/plain", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 400 {
		return errors.New(resp.Status)
	}
	return nil
}

// exit ends with the code, after it wrote the second argument, if there is one, as the container's last message.
func exit(args []string) error {
	if len(args) == 0 {
		return errUse
	}
	code, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	if len(args) > 1 {
		if err := os.WriteFile("/dev/termination-log", []byte(args[1]), 0o600); err != nil {
			return err
		}
	}
	os.Exit(code)
	return nil
}

// fill takes so many MiB of memory, one after the other, and keeps them.
func fill(args []string) error {
	s, err := one(args)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		return err
	}
	var all [][]byte
	for range n {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		all = append(all, b)
	}
	fmt.Println("holding", len(all), "MiB")
	time.Sleep(math.MaxInt64)
	return nil
}

// writeFile writes the second argument into the file the first names.
func writeFile(args []string) error {
	if len(args) != 2 {
		return errUse
	}
	return os.WriteFile(args[0], []byte(args[1]), 0o644)
}

// id prints user, group and further groups.
func id([]string) error {
	groups, err := os.Getgroups()
	fmt.Println(os.Getuid(), os.Getgid(), groups)
	return err
}
