// Command widgets is a device plugin: it gives a node widgets, as a vendor's plugin gives it GPUs. Each is a tun device, which no container may
// open unasked, by a node that everybody may. It tells the kubelet of them at its socket, and hands out to each container that gets one the
// device, and what CDI (a specification in /etc/cdi) adds to it. The stories of the lab run it beside a laptop's kubelet; nothing that Kith
// ships needs it.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"path"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

func main() {
	log.SetFlags(0)
	resource := flag.String("resource", "example.com/widget", "what the node counts them as")
	count := flag.Int("count", 2, "how many there are")
	cdi := flag.Bool("cdi", false, "hand them out by CDI too")
	flag.Parse()
	if err := run(*resource, *count, *cdi); err != nil {
		log.Fatal(err)
	}
}

func run(resource string, count int, cdi bool) error {
	w := &widgets{resource: resource, count: count, cdi: cdi}
	if cdi {
		if err := w.specify(); err != nil {
			return err
		}
	}
	for i := range count {
		if _, err := makeDevice(id(i)); err != nil {
			return err
		}
	}
	socket := filepath.Join(plugin.DevicePluginPath, path.Base(resource)+".sock")
	_ = os.Remove(socket) // of a run before
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	plugin.RegisterDevicePluginServer(server, w)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	if err := w.register(filepath.Base(socket)); err != nil {
		return fmt.Errorf("tell the kubelet at %s: %w", plugin.KubeletSocket, err)
	}
	log.Printf("%d of %s", count, resource)
	return <-failed
}

// widgets answers the kubelet.
type widgets struct {
	plugin.UnimplementedDevicePluginServer
	resource string
	count    int
	cdi      bool
}

func (w *widgets) register(endpoint string) error {
	conn, err := grpc.NewClient("unix://"+plugin.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, err = plugin.NewRegistrationClient(conn).Register(ctx, &plugin.RegisterRequest{Version: plugin.Version, Endpoint: endpoint, ResourceName: w.resource})
	return err
}

// folder holds the devices. In a container each is where it is outside: where the container has a user namespace, as guests have, runc looks for
// it outside by the path that it has inside.
const folder = "/var/lib/widgets"

// tun is the device of major and minor number 10 and 200, by which packets come from a program: opened and not told which, it has nothing to
// read, and says so.
var tun = unix.Mkdev(10, 200)

// makeDevice makes the node of a device that everybody may open: root in a guest is nobody out here.
func makeDevice(name string) (path string, err error) {
	path = filepath.Join(folder, name)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	_ = os.Remove(path) // of a run before
	if err := unix.Mknod(path, unix.S_IFCHR, int(tun)); err != nil {
		return "", err
	}
	return path, os.Chmod(path, 0o666)
}

// specify writes what CDI adds to a container with a widget: a variable, and one more device.
func (w *widgets) specify() error {
	type edits map[string]any
	more, err := makeDevice("by-cdi")
	if err != nil {
		return err
	}
	spec := map[string]any{"cdiVersion": "0.6.0", "kind": w.resource}
	var devices []map[string]any
	for i := range w.count {
		devices = append(devices, map[string]any{"name": id(i), "containerEdits": edits{
			"env": []string{"WIDGET=" + id(i)}, "deviceNodes": []edits{{"path": more}},
		}})
	}
	spec["devices"] = devices
	text, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	if err := os.MkdirAll("/etc/cdi", 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join("/etc/cdi", path.Base(w.resource)+".json"), text, 0o644)
}

func id(i int) string { return fmt.Sprintf("widget-%d", i) }

func (*widgets) GetDevicePluginOptions(context.Context, *plugin.Empty) (*plugin.DevicePluginOptions, error) {
	return &plugin.DevicePluginOptions{}, nil
}

func (w *widgets) ListAndWatch(_ *plugin.Empty, to grpc.ServerStreamingServer[plugin.ListAndWatchResponse]) error {
	var all plugin.ListAndWatchResponse
	for i := range w.count {
		all.Devices = append(all.Devices, &plugin.Device{ID: id(i), Health: plugin.Healthy})
	}
	if err := to.Send(&all); err != nil {
		return err
	}
	<-to.Context().Done()
	return nil
}

func (w *widgets) Allocate(_ context.Context, asked *plugin.AllocateRequest) (*plugin.AllocateResponse, error) {
	var answer plugin.AllocateResponse
	for _, c := range asked.ContainerRequests {
		var one plugin.ContainerAllocateResponse
		for _, id := range c.DevicesIds {
			path := filepath.Join(folder, id)
			one.Devices = append(one.Devices, &plugin.DeviceSpec{ContainerPath: path, HostPath: path, Permissions: "rw"})
			if w.cdi {
				one.CdiDevices = append(one.CdiDevices, &plugin.CDIDevice{Name: w.resource + "=" + id})
			}
		}
		answer.ContainerResponses = append(answer.ContainerResponses, &one)
	}
	return &answer, nil
}
