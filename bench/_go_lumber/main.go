// Reads Lumberjack v2 with go-lumber's own server, and acknowledges each window at once:
// nothing is stored.  It prints the port that it listens on.
package main

import (
	"fmt"
	"log"
	"net"

	"github.com/elastic/go-lumber/server"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	reader, err := server.NewWithListener(listener, server.V2(true))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	for batch := range reader.ReceiveChan() {
		batch.ACK()
	}
}
