// Kith-image is what Kith does with the images of a containerd, each in a process of its own, so that neither kithd nor the engine reads
// what strangers send:
//
//	pull    an image for a guest, from its home or a registry: containerd asks whatever registry a name leads to, and follows it
//	        wherever it sends on, from the laptop's own network; this stays on the internet and with the registries that the owner lists
//	read    parts of images, for peers whose guests need them
//	import  images from an archive, as docker save and podman save write them
//	list    what images there are
//	remove  an image
//
// Its standard input is an order in JSON (for import, an archive after it; for read, more orders). It ends with 3 where there is no such image.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"
)

var commands = map[string]func(ctx context.Context, in io.Reader, out io.Writer) error{
	"pull": pull, "read": readParts, "import": load, "list": list, "remove": remove,
}

const exitNotFound = 3

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	logrus.SetOutput(io.Discard) // what it would say is in the error
	err := errors.New("kith-image: want one of pull, read, import, list, remove")
	if len(os.Args) == 2 && commands[os.Args[1]] != nil {
		err = commands[os.Args[1]](ctx, os.Stdin, os.Stdout)
	}
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, err)
	if errdefs.IsNotFound(err) {
		os.Exit(exitNotFound)
	}
	os.Exit(1)
}

// mostOrder bounds an order.
const mostOrder = 1 << 20

// read takes the order, which is one line. What comes after it is left where it is. io.EOF: there is none.
func read(in io.Reader, order any) error {
	line := make([]byte, 0, 512)
	for one := make([]byte, 1); len(line) < mostOrder; {
		n, err := in.Read(one)
		if n == 1 && one[0] != '\n' {
			line = append(line, one[0])
			continue
		}
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return io.EOF
		}
		if n == 1 || errors.Is(err, io.EOF) {
			if err := json.Unmarshal(line, order); err != nil {
				return fmt.Errorf("kith-image: order: %w", err)
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("kith-image: order: %w", err)
		}
	}
	return fmt.Errorf("kith-image: an order has %d bytes at most", mostOrder)
}

// dial gives a client of the images that the kubelet knows.
func dial(socket string) (*containerd.Client, error) {
	client, err := containerd.New(socket, containerd.WithDefaultNamespace("k8s.io"))
	if err != nil {
		return nil, fmt.Errorf("containerd: %w", err)
	}
	return client, nil
}
