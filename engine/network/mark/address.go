package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ranges is what the configuration says of addresses.
type ranges struct {
	Networks string `json:"networks"` // folder with a file per namespace, a range as host-local takes it (kith.dev/core/guestnet, WriteNetwork)
	DataDir  string `json:"dataDir"`  // host-local's
}

// The plugin that notes who has which address, and the start of the names by which it does so, one for each range: so a range goes
// round before an address is given again.
const (
	hostLocal = "host-local"
	notes     = "kith-guests"
)

// address asks host-local for a guest's address, out of the range that its namespace has at this moment. An address is given back
// whatever the file says by then.
func address(command string, stdin []byte, r ranges) error {
	if r.Networks == "" || r.DataDir == "" {
		return errors.New("the configuration of addresses names no networks and dataDir")
	}
	if command == "DEL" {
		known, err := filepath.Glob(filepath.Join(r.DataDir, notes+"*"))
		for _, dir := range known {
			// The range does not matter to it, but that there is one.
			err = errors.Join(err, ask(stdin, filepath.Base(dir), []byte(`{"subnet":"10.0.0.0/24"}`)))
		}
		return err
	}
	guests, file, err := rangeOf(r.Networks, argument("K8S_POD_NAMESPACE"))
	if err != nil {
		return err
	}
	return ask(stdin, notes+"-"+guests.Addr().String(), file)
}

func rangeOf(dir, namespace string) (netip.Prefix, []byte, error) {
	if namespace == "" || namespace != filepath.Base(namespace) || strings.HasPrefix(namespace, ".") {
		return netip.Prefix{}, nil, fmt.Errorf("this network is for pods of a namespace, and %q is none", namespace)
	}
	path := filepath.Join(dir, namespace)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return netip.Prefix{}, nil, fmt.Errorf("the network of namespace %s is not known here yet: kithd writes %s once the laptops agreed on a range of addresses", namespace, path)
	}
	if err != nil {
		return netip.Prefix{}, nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 1<<10))
	if err != nil {
		return netip.Prefix{}, nil, err
	}
	var says struct {
		Subnet netip.Prefix `json:"subnet"`
	}
	if err := json.Unmarshal(b, &says); err != nil || !says.Subnet.IsValid() {
		return netip.Prefix{}, nil, fmt.Errorf("%s names no subnet: kithd writes it anew when it starts", path)
	}
	return says.Subnet, b, nil
}

// ask runs host-local with the same configuration, for that network and range.
func ask(stdin []byte, network string, guests json.RawMessage) error {
	var conf, ipam map[string]json.RawMessage
	if err := json.Unmarshal(stdin, &conf); err != nil {
		return err
	}
	if err := json.Unmarshal(conf["ipam"], &ipam); err != nil {
		return err
	}
	ipam["type"], ipam["ranges"] = raw(hostLocal), raw([][]json.RawMessage{{guests}})
	conf["name"], conf["ipam"] = raw(network), raw(ipam)
	for dir := range strings.SplitSeq(os.Getenv("CNI_PATH"), string(os.PathListSeparator)) {
		program := filepath.Join(dir, hostLocal)
		if _, err := os.Stat(program); err != nil {
			continue
		}
		cmd := exec.Command(program)
		cmd.Stdin, cmd.Stderr = bytes.NewReader(raw(conf)), os.Stderr
		answer, err := cmd.Output()
		if err != nil {
			var told struct{ Msg string }
			if json.Unmarshal(answer, &told) == nil && told.Msg != "" {
				err = errors.New(told.Msg)
			}
			return fmt.Errorf("%s: %w", hostLocal, err)
		}
		_, err = os.Stdout.Write(answer)
		return err
	}
	return fmt.Errorf("%s is in none of the folders of CNI_PATH", hostLocal)
}

// raw is a value as JSON; none of those here has no such form.
func raw(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
